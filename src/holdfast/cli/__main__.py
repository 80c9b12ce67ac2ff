"""``python -m holdfast.cli`` is ``holdfast``."""

from holdfast.cli import main

main()
