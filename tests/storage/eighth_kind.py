"""A process in which there is one more kind of memory: its name, and its row of ``TYPES``.

It stores memories of that kind, finds them, removes their agent, brings it back, and lets time pass: by the URL and the
home that are given.
"""

from __future__ import annotations

import sys
from importlib import abc, util
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

NAME = '    STRUCTURED = "structured"\n'
ROW = "            Kind(\n                MemoryType.STRUCTURED,\n                7,"


class Longer(SourceFileLoader):
    """Reads the table of kinds with one row more."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        text = bytes(data).decode()
        assert NAME in text
        assert ROW in text
        text = text.replace(NAME, NAME + '    NOTES = "notes"\n')
        life = "Terms(archive_after=DAY, delete_after=2 * DAY)"
        given = f"_AGENT, True, 100.0, 100, MIB, Archive.COLD, {life}, Rhythm.DAILY, shown_once=True"
        notes = f"Kind(MemoryType.NOTES, 8, {given})"
        return super().source_to_code(text.replace(ROW, f"            {notes},\n{ROW}").encode(), path)

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)  # never what was compiled of seven


class Finder(abc.MetaPathFinder):
    """Finds the module of that table."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path, target) if name == "holdfast.core.records" else None
        if found is None or found.origin is None:
            return None
        return util.spec_from_file_location(name, found.origin, loader=Longer(name, found.origin))


def main(url: str, home: str) -> None:
    """Do all of it."""
    sys.meta_path.insert(0, Finder())
    from clocks import FakeClock
    from holdfast import Holdfast

    clock = FakeClock()
    with Holdfast.open(home=home, url=url, clock=clock) as holdfast:
        guide = holdfast.manager("ann", "guide")
        ids = [guide.add(f"note {number}: tea is at four", "notes")["memory_id"] for number in range(3)]
        guide.add("tea is at five", "long_term")
        assert {one["memory_id"] for one in guide.retrieve("when is tea", memory_type="notes")} == set(ids)
        assert holdfast.manager("ann", "other").retrieve("when is tea", memory_type="notes") == [], "an agent's own"
        assert guide.count_memories("notes") == len(ids)
        again = guide.add("note 0: tea is at four", "notes")["memory_id"]
        assert guide.count_memories("notes") == len(ids) + 1
        found = [one["memory_id"] for one in guide.retrieve("when is tea", memory_type="notes")]
        assert len(found) == len(ids), "what says the same is shown once"
        guide.delete(again)

        holdfast.agents.remove("guide")
        assert guide.retrieve("when is tea", memory_type="notes") == []
        holdfast.agents.restore("guide")
        assert len(guide.retrieve("when is tea", memory_type="notes")) == len(ids)

        clock.advance(days=1, minutes=1)
        holdfast.sweep(confirm=True)
        assert guide.retrieve("when is tea", memory_type="notes") == [], "archived, and out of recall"
        archived = guide.retrieve("when is tea", memory_type="notes", include_archived=True)
        assert {one["memory_id"] for one in archived} == set(ids)
        clock.advance(days=1)
        holdfast.sweep(confirm=True)
        assert guide.retrieve("when is tea", memory_type="notes", include_archived=True) == []
        clock.advance(days=16)
        holdfast.sweep(confirm=True)
        assert guide.count_memories("long_term") == 1


if __name__ == "__main__":
    main(*sys.argv[1:])
