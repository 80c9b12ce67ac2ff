"""A kind of memory is one row of a table: engines take a new one as they take the others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from databases import postgres_server
from holdfast.core.records import COUNT_BITS, KIND_BITS, LAST_KIND, TYPES

CHILD = Path(__file__).with_name("eighth_kind.py")
#: What statements compare kinds with, and the words of ours among it, which are made of the table of kinds.
LISTS = re.compile(r"kind IN \(([^)]*)")
WORDS = {":OWN_KINDS", ":TEXT_KINDS"}


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_one_more_kind_is_stored_found_and_swept(engine: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/holdfast.db" if engine == "sqlite" else postgres_server().new_database()
    ran = subprocess.run(
        [sys.executable, str(CHILD), url, str(tmp_path / "home")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_there_is_room_for_more_kinds_than_there_are() -> None:
    assert max(kind.code for kind in TYPES.values()) <= LAST_KIND // 4
    assert KIND_BITS + COUNT_BITS <= 63 - 28, "and for 2**28 subjects in a signed integer of 64 bits"


def test_no_statement_names_a_kind_by_its_number() -> None:
    storage = Path(sys.modules["holdfast"].__path__[0]) / "storage"
    for file in storage.glob("**/*.sql"):
        text = file.read_text(encoding="utf-8")
        assert set(LISTS.findall(text)) <= WORDS, file
        assert "kind = 'history'" in text or not any(f"kind = {number}" in text for number in range(10)), file
