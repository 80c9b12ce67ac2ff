"""``python -m retain.cli`` is ``retain``."""

from retain.cli import main

main()
