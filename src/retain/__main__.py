"""``python -m retain`` is ``retain``."""

from retain.cli import main

main()
