"""Whatever happens, in whichever process: a text that is kept out is in no answer."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from effort import times
from holdfast import Holdfast, HoldfastError, MemoryManager
from holdfast.core.texts import normalize_text

TEXTS = ["Ann likes tea", "Bob has a dog", "Eve is 30"]
FORMS = ["{}", "{}!", "  {} .", "{}?!"]
KINDS = ["long_term", "persona", "episodic", "entity"]
STEPS = [
    "add",
    "many",
    "update",
    "correct",
    "keyed",
    "delete",
    "keep_out",
    "lift",
    "restore",
    "revert",
    "backup",
    "back",
    "sweep",
]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)), max_size=25
)


class Processes:
    """Two processes over one store, and what a plain model says is kept out."""

    def __init__(self, engines: list[Holdfast], user: str) -> None:
        self._engines, self._user = engines, user
        self._made: list[str] = []
        self._backups: list[str] = []
        self.kept_out: dict[str, str] = {}

    def memory(self, which: int) -> MemoryManager:
        return self._engines[which % 2].manager(self._user, f"agent_{which // 2}")

    def act(self, step: str, text: int, form: int, which: int) -> None:
        memory, content = self.memory(which), FORMS[form].format(TEXTS[text])
        one = self._made[(7 * text + form) % len(self._made)] if self._made else ""
        match step:
            case "add":
                self._made.append(memory.add(content, KINDS[form], dedupe=which == 1)["memory_id"])
            case "many":
                self._made += memory.add_many([content, f"note {len(self._made)}"])["memory_ids"]
            case "keyed":
                self._made.append(memory.add(content, key="fact")["memory_id"])
            case "update":
                memory.update(one, content)
            case "correct":
                memory.correct(one, content)
            case "revert":
                memory.revert(one, to=1)
            case "delete" | "restore":
                getattr(memory, step)(one)
            case "keep_out":
                said = memory.get(one)["content"]
                memory.delete(one, keep_out=True)
                self.kept_out[one] = normalize_text(said)
            case "lift":
                kept = next(iter(self.kept_out), "")
                memory.lift(kept)
                del self.kept_out[kept]
            case "backup":
                self._backups.append(self._engines[0].backups.create().id)
            case "back" if self._backups:
                self._engines[1].backups.restore(self._backups[0], user_id=self._user, overwrite=form == 0)
            case "sweep":
                self._engines[0].sweep(confirm=True)

    def answers(self, clock: FakeClock) -> set[str]:
        """All that anybody can get to read."""
        found: list[Any] = []
        for which in range(4):
            memory = self.memory(which)
            for kind in KINDS:
                found += memory.list_memories(kind, include_archived=True)
                found += memory.retrieve("Ann Bob Eve", kind, top_k=100, as_of=None if which % 2 else clock())
            for one in self._made:
                with suppress(HoldfastError):
                    found += [memory.get(one), *memory.history(one)]
        return {normalize_text(one["content"]) for one in found}


@settings(max_examples=times(5), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(actions=ACTIONS, days=st.integers(0, 20))
def test_a_text_that_is_kept_out_never_comes_back(home: Path, clock: FakeClock, actions: list[Any], days: int) -> None:
    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
        processes = Processes([one, other], f"user_{len(list(home.iterdir()))}_{clock().timestamp()}")
        for action in actions:
            with suppress(HoldfastError):
                processes.act(*action)
            assert processes.answers(clock).isdisjoint(processes.kept_out.values()), action
            clock.advance(hours=1)
        clock.advance(days=days)
        assert processes.answers(clock).isdisjoint(processes.kept_out.values())
