"""``python -m holdfast`` is ``holdfast``."""

from holdfast.edges.cli import main

main()
