"""What Holdfast costs and how well it recalls, measured: ``make bench-full``, figures in ``docs/benchmarks.md``.

With ``HOLDFAST_BENCH_PART=100`` stores have a hundredth of their size. That shows within minutes that everything works;
the figures mean nothing, and go to ``build/bench`` instead of the page.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PART: Final = int(os.environ.get("HOLDFAST_BENCH_PART", "1"))
#: Where the page is, and what was measured for it.
DOCS: Final = ROOT / "docs" if PART == 1 else ROOT / "build" / "bench"
DATA: Final = ROOT / "bench" / "data" if PART == 1 else DOCS


def scale(count: int, least: int = 1) -> int:
    """So many, or the part of it that is asked for."""
    return max(count // PART, least)
