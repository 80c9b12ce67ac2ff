"""A process that sweeps until it is killed: ``python sweeper.py HOME SECONDS``, one line for each batch."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from holdfast import Holdfast


def main(home: str, seconds: str) -> None:
    now = datetime.fromtimestamp(float(seconds), UTC)
    with Holdfast.open(home=home, clock=lambda: now) as holdfast:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

        def progress(count: int) -> None:
            sys.stdout.write(f"{count}\n")
            sys.stdout.flush()

        holdfast.sweep(progress=progress)


if __name__ == "__main__":
    main(*sys.argv[1:])
