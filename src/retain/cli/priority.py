"""How a command shares the machine with others."""

from __future__ import annotations

import os
from typing import Final

_NICENESS: Final = 10


def step_back() -> None:
    """Let whoever else uses the machine go first: a process that does nothing but sweep can wait, recall cannot."""
    if hasattr(os, "nice"):
        os.nice(max(0, _NICENESS - os.nice(0)))
