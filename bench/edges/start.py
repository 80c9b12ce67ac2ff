"""The start of a process: the CPU time of each step up to the first memory, of the dearest add after that, of the
largest texts that are permitted, and of a whole command of the shell beside what its libraries take to load.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from typing import Final

CHILDREN: Final = 5
#: What Python compiles is kept, as it is where Holdfast was installed.
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
_CHILD: Final = """
import json, sys, time
taken, last = {}, time.process_time()

def done(step):
    global last
    now = time.process_time()
    taken[step] = max(taken.get(step, 0), 1_000 * (now - last))
    last = time.process_time()

from holdfast import Holdfast
done("import")
with Holdfast.open(home=sys.argv[1]) as holdfast:
    memory = holdfast.manager("user", "agent")
    done("open")
    memory.add("User enjoys skiing and mountain views")
    done("add")
    for number in range(500):
        memory.add(f"User enjoys skiing and mountain views, as note number {number} says")
        done("later")
    most = 7_000_000
    shapes = {
        "prose": "User enjoys skiing and mountain views in winter. " * (most // 49),
        "words": " ".join(f"word{number}" for number in range(most // 12)),
        "one word": "a1b2c3d4" * (most // 8),
        "Chinese": "用户喜欢在冬天滑雪和看山景" * (most // 39),
        "marks": "e\u0301\u0323" * (most // 5),
    }
    for text in shapes.values():
        last = time.process_time()
        memory.add(text)
        done("largest")
print(json.dumps(taken))
"""


def measure() -> dict[str, float]:
    """Milliseconds of CPU at the median of some new processes: ``import``, ``open``, the first ``add``, the dearest of
    500 ``later`` ones, among which is the one that loads the compiled tokenizer, and the dearest of the ``largest``
    texts, of about 7 MB in five shapes. Of the shell: ``command`` is ``holdfast add``, ``version`` is ``holdfast
    --version``, and ``floor`` is Python with numpy and apsw alone.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as home:
        child = [sys.executable, "-c", _CHILD, home]
        found = [
            json.loads(subprocess.run(child, check=True, capture_output=True, env=ENVIRONMENT).stdout)
            for _ in range(CHILDREN)
        ]
        command = [sys.executable, "-m", "holdfast"]
        shell = {
            "command": [*command, "add", "User enjoys skiing", "--user", "user", "--home", home],
            "version": [*command, "--version"],
            "floor": [sys.executable, "-c", "import numpy, apsw"],
        }
        turns = [{step: _cpu_ms(one) for step, one in shell.items()} for _ in range(CHILDREN + 1)][1:]  # but the first
        taken = {step: statistics.median(turn[step] for turn in turns) for step in shell}
    return taken | {step: statistics.median(one[step] for one in found) for step in found[0]}


def _cpu_ms(command: list[str]) -> float:
    """Milliseconds of CPU that a process takes from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1_000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
