"""A marker, planted wherever something of a user can be, and a search for it in every byte."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from pathlib import Path

import raw
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.ports.coordination import JobRun
from holdfast.storage.catalog import LOCATIONS, Where
from homes import Homes

#: How many memories there are of the user: enough for the pages of a file to be split, and joined again.
MANY = 120


class Sentinel:
    """A random text, of the user's name and of everything that is said by and about them."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(10)
        self.user_id = f"user-{self.mark}"
        self.vectors: list[bytes] = []

    def text(self, what: str) -> str:
        return f"{what} {self.mark} {secrets.token_hex(4)}"

    def plant(self, holdfast: Holdfast, clock: FakeClock) -> None:
        """Put it everywhere: what is archived cold and in place, what is in the bin, and what is new."""
        memory = holdfast.manager(self.user_id, "guide", f"session-{self.mark}")
        holdfast.quotas.set("long_term", max_memories=5_000, user_id=self.user_id)
        holdfast.policies.set("long_term", user_id=self.user_id, keep_days=1)
        self._remember(holdfast, "old", MANY)
        clock.advance(days=20)
        holdfast.sweep()
        holdfast.backups.create()
        clock.advance(days=364)
        holdfast.sweep()
        self._remember(holdfast, "new", MANY)
        ids = [item["memory_id"] for item in memory.list_memories("long_term", limit=10)]
        for memory_id in ids[:3]:
            memory.delete(memory_id)
        memory.update(ids[4], self.text("changed"))
        memory.short_term.delete(memory.short_term.messages()[0].id)
        holdfast.policies.set("long_term", user_id=self.user_id, memory_id=ids[5], keep_days=2)
        hold = holdfast.holds.add(user_id=self.user_id, reason="a case", author="counsel")
        holdfast.holds.release(hold.id, author="counsel")
        hold = holdfast.holds.add(memory_id=ids[6], reason="a case", author="counsel")
        holdfast.holds.release(hold.id, author="counsel")
        for users in ([self.user_id], [self.user_id, "bob"]):
            holdfast.access.create("phone", rights=["read"], tenant=holdfast.tenant, users=users)
        memory.add(self.text("a note"), "working")
        result = {"set_aside": [{"tenant": holdfast.tenant, "user_id": self.user_id, "agent_id": None}]}
        error = f"user {self.user_id!r} would lose much"
        raw.run(holdfast, "UPDATE jobs SET result = ?, error = ? WHERE name = 'daily'", (json.dumps(result), error))
        holdfast.services.jobs.keep_run(JobRun("daily", 1, 2, 1, result, error))
        statement = (
            "SELECT vectors FROM records JOIN subjects ON subjects.no = records.subject WHERE subjects.subject = ?"
        )
        found = raw.rows(holdfast, statement, (f"{holdfast.tenant}/{self.user_id}",))
        self.vectors = [bytes(row[0]) for row in found if row[0] is not None]
        holdfast.backups.create()

    def _remember(self, holdfast: Holdfast, when: str, many: int) -> None:
        memory = holdfast.manager(self.user_id, "guide", f"session-{self.mark}")
        memory.add_many([self.text(f"{when} {n}") for n in range(many)], "long_term", {"who": self.mark})
        memory.add(self.text("long ") * 100, "long_term", {"tags": [self.mark]})
        memory.add(self.text("speaks"), "persona", {"who": self.mark})
        memory.structured.put("trips", {"city": self.text("Rome")}, key=f"{when}-{self.mark}")
        memory.episodic.record_episode(
            self.text("book"),
            [self.text("a step")],
            messages=[self.text("said")],
            tool_calls=[{"name": "find", "arguments": {"who": self.mark}}],
        )
        memory.entity.add(f"{when} {self.mark}", attributes={"city": self.text("Paris")})
        memory.entity.add(f"{when} friend {self.mark}")
        memory.entity.relate(f"{when} {self.mark}", "knows", f"{when} friend {self.mark}")
        memory.short_term.add_message("user", self.text("hello"))
        memory.short_term.add_message("assistant", self.text("good day"))

    def hits(self, homes: Homes, home: Path) -> list[str]:
        """Where it is: files of the home, by every byte, names included, and tables of its database."""
        wanted = [self.mark.encode(), self.mark.encode().hex().encode(), *(vector[:48] for vector in self.vectors)]
        places = {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}
        places |= {f"table {name}": rows for name, rows in homes.tables(home).items()}
        return [name for name, held in places.items() if any(text in held for text in (wanted)) or self.mark in name]


def unlisted(names: Iterable[str], *where: Where) -> list[str]:
    """Names of files, objects or keys that the catalogue does not list in any of these locations."""
    return [name for name in names if not any(one.holds(place, name) for one in LOCATIONS for place in where)]
