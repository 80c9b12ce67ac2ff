"""Holdfast keeps every obligation, on both engines and with windows on Valkey; and the kit needs none of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import proof as tables
from bench.servers import valkey
from typer.testing import CliRunner

import raw
from databases import postgres_server
from docs.pages import ROOT, read_blocks
from holdfast import Holdfast
from holdfast.edges.cli.app import app
from holdfast_prove import OBLIGATIONS, SYSTEMS, prove, scan
from holdfast_prove.obligations import HOLDS, NOT_CLAIMED
from holdfast_prove.systems.holdfast_stores import HoldfastOnSqlite
from holdfast_prove.trial import new_mark
from homes import Homes


def test_every_obligation_holds_embedded(tmp_path: Path) -> None:
    found = {one.obligation: (one.outcome, one.detail) for one in prove("holdfast", tmp_path)}
    assert found == dict.fromkeys(OBLIGATIONS, (HOLDS, ""))


def test_every_obligation_holds_on_postgres_with_windows_on_valkey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_PROVE_POSTGRES", postgres_server().url())
    with valkey() as server:
        monkeypatch.setenv("HOLDFAST_PROVE_VALKEY", server.url)
        found = {one.obligation: (one.outcome, one.detail) for one in prove("prove.stores:OnPostgres", tmp_path)}
    assert found == dict.fromkeys(OBLIGATIONS, (HOLDS, ""))


def test_the_kit_sees_the_text_and_the_vector_of_a_memory_that_is_there(tmp_path: Path) -> None:
    store, mark = HoldfastOnSqlite(tmp_path), new_mark()
    text = f"Ann's word is {mark}"
    store.add("ann", text)
    found = scan.search(store.places(), scan.Wanted([mark], {mark: store.embed(text)}))
    forms = {form for where in found.values() for form in where.values()}
    store.close()
    assert "plain" in forms
    vector = scan.search(store.places(), scan.Wanted([], {mark: store.embed(text)}))
    assert set(vector[mark].values()) == {"vector in 8-bit steps"}


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_postgres_keeps_no_samples_of_what_users_are_called_or_said(homes: Homes) -> None:
    words_of_ours = {"state", "previous", "part_state", "role", "kind", "sort", "cause", "action", "tenant", "agent_id"}
    statement = (
        "SELECT DISTINCT attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped "
        "AND atttypid IN ('text'::regtype, 'bytea'::regtype, 'jsonb'::regtype, 'json'::regtype) "
        "AND attstattarget IS DISTINCT FROM 0"
    )
    with Holdfast.open(home=homes.new()) as holdfast:
        assert {name for (name,) in raw.rows(holdfast, statement)} == words_of_ours


# --- by itself --------------------------------------------------------------------------------------------------------


def test_the_kit_can_be_imported_without_the_rest() -> None:
    found = "import sys, holdfast_prove.__main__; print([name for name in sys.modules if '.' not in name])"
    command = [sys.executable, "-c", found]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=_paths())
    loaded = set(json.loads(done.stdout.replace("'", '"')))
    assert not loaded & {"holdfast", "numpy", "apsw", "cryptography", "rich", "typer", "psycopg"}


def test_the_adapters_of_the_page_run_as_they_are_printed(tmp_path: Path) -> None:
    notes, diary, mend = (block.text for block in read_blocks(tables.PAGE) if block.language in {"python", "sql"})
    ends = ("def erase_user", "def places")  # of delete, and of erase_user
    tidy = diary.replace("Diary", "Tidy")
    for end in ends:
        tidy = tidy.replace(f"\n    {end}", f'        self.db.execute("{mend.strip()}")\n\n    {end}')
    for name, code in {"notes": notes, "diary": diary, "tidy": tidy}.items():
        (tmp_path / f"{name}.py").write_text(code)
    assert _try_adapter("notes:Notes", tmp_path) == (0, "5 hold, 0 fail, 9 are not claimed.")
    assert _try_adapter("diary:Diary", tmp_path) == (3, "5 hold, 2 fail, 7 are not claimed.")
    assert _try_adapter("tidy:Tidy", tmp_path) == (0, "7 hold, 0 fail, 7 are not claimed.")


def _try_adapter(name: str, folder: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "holdfast_prove", "--adapter", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=_paths())
    return done.returncode, done.stdout.splitlines()[-1]


def test_the_page_says_what_is_tried_and_what_was_found() -> None:
    text = tables.PAGE.read_text(encoding="utf-8")
    found = json.loads(tables.KEPT.read_text(encoding="utf-8"))
    assert tables.fill(text, found) == text, "renew it with: make prove"
    assert set(found) == set(SYSTEMS)
    ours = [one for name, one in found.items() if name.startswith("holdfast")]
    assert {result["outcome"] for one in ours for result in one["results"]} == {HOLDS}
    for one in found.values():
        assert {result["obligation"] for result in one["results"] if result["outcome"] != NOT_CLAIMED} <= {
            *(one["claims"] or OBLIGATIONS)
        }, f"{one['system']} is held to what it does not claim"
        assert one["took"] < 300


def test_a_system_that_fails_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    broken = "from prove.notes import Alone\n\n\nclass Broken(Alone):\n    def delete(self, user_id, record_id):\n        pass\n"
    (tmp_path / "broken.py").write_text(broken)
    command = [sys.executable, "-m", "holdfast_prove", "--adapter", "broken:Broken", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=_paths())
    outcomes = {one["obligation"]: one["outcome"] for one in json.loads(done.stdout)["results"]}
    assert done.returncode == 3
    assert outcomes["search"] == outcomes["bytes"] == "fails"
    assert outcomes["erased"] == HOLDS
    assert outcomes["proof"] == NOT_CLAIMED


def test_a_system_that_is_not_here_is_named() -> None:
    refused = CliRunner().invoke(app, ["prove", "nosuchsystem"])
    assert refused.exit_code == 2
    assert "'nosuchsystem' is no system that is known here" in refused.stderr


def _paths() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])}
