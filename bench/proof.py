"""``python -m bench.proof [SYSTEM …]``: try how every system forgets, and write the tables of docs/forgetting.md.

Holdfast runs here, the others in ``.venv-peers`` (``make peers``). A server is started for those that need one. With
names of systems only these run anew; the results of the others stay as they are in ``bench/data/forgetting.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.servers import postgres
from holdfast_prove import OBLIGATIONS, SYSTEMS
from holdfast_prove.obligations import FAILS, HOLDS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "forgetting.md"
KEPT = ROOT / "bench" / "data" / "forgetting.json"
PEERS = Path(os.environ.get("HOLDFAST_PEERS", ROOT / ".venv-peers")) / "bin" / "python"
_CELLS = {HOLDS: "✓", FAILS: "**✗**"}


def run(name: str, server: str) -> dict[str, Any]:
    """What a system did, or why it could not be tried."""
    python = sys.executable if name.startswith("holdfast") else str(PEERS)
    begun = time.monotonic()
    command = [python, "-W", "ignore", "-m", "holdfast_prove", name, "--json", "--server", server]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    took = round(time.monotonic() - begun)
    if not done.stdout.startswith("{"):
        return {
            "system": name,
            "failed": (done.stderr.strip().splitlines() or ["it printed nothing"])[-1],
            "took": took,
        }
    return {**json.loads(done.stdout), "took": took, "cores": os.cpu_count()}


def describe_obligations() -> Iterator[str]:
    """What is tried, as a table."""
    yield "| obligation | what is tried | needs |"
    yield "|---|---|---|"
    for name, one in OBLIGATIONS.items():
        needs = ", ".join(f"`{method}`" for method in one.needs) or "the six methods"
        yield f"| `{name}` | {one.about} | {needs} |"


def describe_results(found: Mapping[str, Any]) -> Iterator[str]:
    """What came of it: a table, and below it the claims and what was seen."""
    ran = [one for one in found.values() if "results" in one]
    yield f"| | {' | '.join(one['system'] for one in ran)} |"
    yield f"|---|{'---|' * len(ran)}"
    yield f"| version | {' | '.join(str(one['version']) for one in ran)} |"
    for number, name in enumerate(OBLIGATIONS):
        yield f"| `{name}` | {' | '.join(_cell(one['results'][number]) for one in ran)} |"
    yield f"| seconds | {' | '.join(str(one['took']) for one in ran)} |"
    yield ""
    yield "✓ holds · **✗** fails · – not claimed (+ it is so all the same, − it is not)."
    yield f"`make prove` on {ran[0]['cores']} busy cores, Python {ran[0]['python']}."
    for one in found.values():
        yield ""
        yield f"### {one['system']}"
        yield ""
        if "failed" in one:
            yield f"It could not be tried: {one['failed']}"
            continue
        yield from _describe(one)


def _cell(result: Mapping[str, Any]) -> str:
    if result["outcome"] in _CELLS:
        return _CELLS[result["outcome"]]
    if not result["seconds"]:
        return "–"
    return "– (+)" if result["detail"].startswith("it is so, though") else "– (−)"


def _describe(one: Mapping[str, Any]) -> Iterator[str]:
    if one["settles"]:
        yield f"Before bytes are looked for. {one['settles']}"
        yield ""
    if one["claims"] is None:
        yield "It claims every obligation that it has methods for: all of them."
        yield ""
    else:
        quotes: dict[tuple[str, str], list[str]] = {}
        for name, claim in one["claims"].items():
            quotes.setdefault((claim["quote"], claim["at"]), []).append(f"`{name}`")
        yield from (f"- {', '.join(names)}: “{quote}” ({at})" for (quote, at), names in quotes.items())
        yield ""
    seen = [result for result in one["results"] if result["detail"] and result["seconds"]]
    yield from (f"- `{result['obligation']}`: {result['outcome']}; {result['detail']}." for result in seen)


def fill(text: str, found: Mapping[str, Any]) -> str:
    """The page with the tables in it."""
    parts = {"obligations": describe_obligations(), "results": describe_results(found)}
    for name, lines in parts.items():
        before, _, rest = text.partition(f"<!-- {name} -->")
        after = rest.partition("<!-- end -->")[2]
        text = f"{before}<!-- {name} -->\n" + "\n".join(lines).strip() + f"\n<!-- end -->{after}"
    return text


def main() -> None:
    """Run what was asked for, keep the results, and write the page."""
    found = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with postgres() as server:
        for name in sys.argv[1:] or SYSTEMS:
            found[name] = run(name, server.url())
            shown = [one["obligation"] for one in found[name].get("results", []) if one["outcome"] == FAILS]
            print(
                f"{name}: {found[name].get('failed') or ('fails: ' + ', '.join(shown) if shown else 'nothing fails')}"
            )
    found = {name: found[name] for name in SYSTEMS if name in found}
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
