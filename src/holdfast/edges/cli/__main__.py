"""``python -m holdfast.edges.cli`` is ``holdfast``."""

from holdfast.edges.cli import main

main()
