"""A write to SQLite that follows another of the same user and kind does not ask first; whatever has changed since, in this
process or in another, is noticed all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import Holdfast
from holdfast.core.errors import AgentRemovedError, HoldfastError, QuotaExceededError
from holdfast.core.records import KIND_BITS, Subject


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Holdfast, Holdfast]]:
    """Two engines over one file: ours, whose next add will not ask, and another's."""
    with Holdfast.open(home=tmp_path) as ours, Holdfast.open(home=tmp_path) as others:
        for text in ("likes trains", "likes windows", "takes tea"):
            add(ours, text)
        yield ours, others


def add(holdfast: Holdfast, text: str, **how: Any) -> str:
    return holdfast.manager("ann", "guide").add(text, **how)["memory_id"]


def statements(holdfast: Holdfast, act: Callable[[], object]) -> list[str]:
    """The first two words of what is carried out meanwhile by the connection that writes."""
    found: list[str] = []

    def note(_cursor: object, sql: str, _bindings: object) -> bool:
        found.append(" ".join(sql.split()[:3]))
        return True

    writer = holdfast.database._writer  # type: ignore[attr-defined]
    writer.exec_trace = note
    try:
        act()
    finally:
        writer.exec_trace = None
    return found


def test_an_add_after_another_asks_nothing(engines: tuple[Holdfast, Holdfast]) -> None:
    ours, others = engines

    sent = statements(ours, lambda: add(ours, "speaks Greek"))

    assert sent == ["BEGIN IMMEDIATE", "INSERT INTO records", "INSERT INTO scopes", "COMMIT"]
    assert others.manager("ann", "guide").count_memories() == 4


def _remove_agent(holdfast: Holdfast) -> None:
    holdfast.agents.add("guide", "books trains")
    holdfast.agents.remove("guide")


@pytest.mark.parametrize("whose", [0, 1], ids=["ours", "another's"])
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (lambda holdfast: holdfast.quotas.set("long_term", max_memories=3, user_id="ann"), QuotaExceededError),
        (lambda holdfast: holdfast.quotas.set("long_term", max_memories=3), QuotaExceededError),
        (_remove_agent, AgentRemovedError),
    ],
    ids=["a user's quota", "a tenant's quota", "an agent that is removed"],
)
def test_what_has_changed_since_is_kept_to(
    engines: tuple[Holdfast, Holdfast], whose: int, change: Callable[[Holdfast], object], refusal: type[HoldfastError]
) -> None:
    ours = engines[0]
    change(engines[whose])

    with pytest.raises(refusal):
        add(ours, "is polite")


@pytest.mark.parametrize("whose", [0, 1], ids=["ours", "another's"])
def test_a_text_that_is_kept_out_since_stays_out(engines: tuple[Holdfast, Holdfast], whose: int) -> None:
    memory = engines[whose].manager("ann", "guide")
    memory.delete(memory.add("is never late")["memory_id"], keep_out=True)

    assert engines[0].manager("ann", "guide").add("Is never late!")["operation"] == "kept_out"


def test_counts_stay_exact_whoever_writes_in_between(engines: tuple[Holdfast, Holdfast]) -> None:
    ours, others = engines
    elsewhere = ours.manager("ann", "other guide")
    for turn in range(3):
        add(others, f"another's note {turn}")
        add(ours, f"note {turn}")
        elsewhere.add(f"note of another agent {turn}")
        add(ours, f"note {turn}", dedupe=True)
        add(ours, f"city {turn}", key="home_city")
        ours.manager("ann", "guide").delete(add(ours, f"for a moment {turn}"))
        ours.manager("bob", "guide").add(f"note {turn}")

    assert others.manager("ann", "guide").count_memories() == 3 + 3 * 3 + 1
    with closing(apsw.Connection(str(ours.settings.home / "holdfast.db"))) as file:
        ((number,),) = file.execute("SELECT no FROM subjects WHERE subject = ?", (Subject("default", "ann"),))
        counted = "SELECT sum(memories), sum(bytes) FROM scopes WHERE scope >> ? = ?"
        live = "SELECT count(*), sum(size) FROM records WHERE subject = ? AND state = 'active'"
        assert file.execute(counted, (KIND_BITS, number)).fetchall() == file.execute(live, (number,)).fetchall()


def test_a_write_that_failed_leaves_nothing_to_rely_on(engines: tuple[Holdfast, Holdfast]) -> None:
    ours, others = engines
    writer = ours.database._writer  # type: ignore[attr-defined]
    writer.set_commit_hook(lambda: True)  # SQLite undoes a commit that its hook refuses
    try:
        with pytest.raises(HoldfastError):
            add(ours, "is lost")
    finally:
        writer.set_commit_hook(None)

    add(ours, "speaks Greek")

    assert others.manager("ann", "guide").count_memories() == 4
