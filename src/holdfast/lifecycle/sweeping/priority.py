"""The priority of processes that work in the background."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

#: Half of what a process may give up: it still gets its share where nobody else wants it.
_NICER: Final = 10


def lower_priority() -> None:
    """Let other processes go first from now on. For processes whose only work is maintenance: a sweep, a backup, the
    schedule. Recall beside them is then about as quick as alone.
    """
    if hasattr(os, "nice"):
        with suppress(OSError):
            os.nice(_NICER)
