"""The start of a process: the CPU time of each step up to the first memory, and of the dearest add after that."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from typing import Final

CHILDREN: Final = 5
_CHILD: Final = """
import json, sys, time
taken, last = {}, time.process_time()

def done(step):
    global last
    now = time.process_time()
    taken[step] = max(taken.get(step, 0), 1_000 * (now - last))
    last = time.process_time()

from retain import Retain
done("import")
with Retain.open(home=sys.argv[1]) as retain:
    memory = retain.manager("user", "agent")
    done("open")
    memory.add("User enjoys skiing and mountain views")
    done("add")
    for number in range(500):
        memory.add(f"User enjoys skiing and mountain views, as note number {number} says")
        done("later")
print(json.dumps(taken))
"""


def measure() -> dict[str, float]:
    """Milliseconds of CPU at the median of some new processes: ``import``, ``open``, the first ``add``, and the dearest
    of 500 ``later`` ones, among which is the one that loads the compiled tokenizer.
    """
    with tempfile.TemporaryDirectory(prefix="retain-bench-") as home:
        found = [
            json.loads(subprocess.run([sys.executable, "-c", _CHILD, home], check=True, capture_output=True).stdout)
            for _ in range(CHILDREN)
        ]
    return {step: statistics.median(one[step] for one in found) for step in found[0]}
