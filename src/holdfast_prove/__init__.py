"""A test of forgetting: whether what was deleted from a memory for AI agents stays deleted.

::

    from pathlib import Path
    from holdfast_prove import prove

    for result in prove("my_package.adapter:MyAdapter", Path("an empty folder")):
        print(result.obligation, result.outcome, result.detail)

It needs nothing but Python. What it asks of a system is in ``adapter``, what it holds the system to in ``obligations``.
"""

from __future__ import annotations

from holdfast_prove.adapter import SYSTEMS, Adapter, load
from holdfast_prove.obligations import OBLIGATIONS, Result, prove

__all__ = ("OBLIGATIONS", "SYSTEMS", "Adapter", "Result", "load", "prove")
