"""Whatever happens, in whichever process: a text that is kept out is in no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from effort import everywhere, soak, times
from holdfast import Holdfast, HoldfastError, MemoryManager
from holdfast.core.errors import KeptOutError
from holdfast.core.texts import normalize_text

TEXTS = ["Ann likes tea", "Bob has a dog", "Eve is 30"]
FORMS = ["{}", "{}!", "  {} .", "{}\u200b?!"]
KINDS = ["long_term", "persona", "episodic", "entity"]
Write = Callable[[MemoryManager, str, int], Any]


def _other(memory: MemoryManager) -> str:
    return memory.add("something else")["memory_id"]


#: Ways to write a text. Each gives what was added, says that it is kept out, or raises that.
WRITES: dict[str, Write] = {
    "add": lambda memory, text, form: memory.add(text, KINDS[form], dedupe=form == 1),
    "many": lambda memory, text, _: memory.add_many([text, "something else"]),
    "keyed": lambda memory, text, _: memory.add(text, key="fact"),
    "supersedes": lambda memory, text, _: memory.add(text, supersedes=_other(memory)),
    "update": lambda memory, text, _: memory.update(_other(memory), text),
    "correct": lambda memory, text, _: memory.correct(_other(memory), text),
    "talk": lambda memory, text, _: memory.remember([{"role": "user", "content": text}], lambda _: [text])[0],
    "import": lambda memory, text, form: memory.import_memories(
        [{"key": f"i{form}", "content": text}], source="import:a"
    ),
    "task": lambda memory, text, _: {"memory_id": memory.episodic.record_episode(text, ["looked"])},
    "step": lambda memory, text, _: {"memory_id": memory.episodic.record_episode("a task", ["looked", text])},
    "entity": lambda memory, text, _: {"memory_id": memory.entity.add(text)},
}
STEPS = [
    *WRITES,
    *("delete", "keep_out", "keep_out", "lift", "restore", "restore", "revert", "backup", "back", "sweep"),
]
ACTIONS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(0, 3), st.integers(0, 3)), min_size=15, max_size=25
)


class Processes:
    """Two processes over one store, and what a plain model says is kept out. One text is, from the beginning."""

    def __init__(self, engines: list[Holdfast], user: str, outcomes: Counter[str]) -> None:
        self._engines, self._user, self._outcomes = engines, user, outcomes
        self._made: list[str] = []
        self._backups: list[str] = []
        self.kept_out: dict[str, str] = {}
        for text in range(3):
            self.act("add", text, 0, text)
        self.act("backup", 0, 0, 0)
        self.act("correct", 1, 1, 1)
        self.act("keep_out", 0, 0, 0)
        for number, step in enumerate(WRITES):
            self.act(step, 0, number % len(FORMS), number)

    def memory(self, which: int) -> MemoryManager:
        return self._engines[which % 2].manager(self._user, f"agent_{which // 2}", "talk")

    def act(self, step: str, text: int, form: int, which: int) -> None:
        """Take a step. Whether a text can be written is what the model says."""
        memory, content = self.memory(which), FORMS[form].format(TEXTS[text])
        if step not in WRITES:
            binned = [
                one["memory_id"] for one in memory.export_kind(self._user, "long_term") if one["state"] == "recycled"
            ]
            ids = binned if step == "restore" and binned else self._made
            self._govern(step, ids[(7 * text + form + which) % len(ids)], memory)
            self._outcomes[f"{step}: done"] += 1
            return
        try:
            said = WRITES[step](memory, content, form)
            refused = bool(said.get("kept_out")) or said.get("operation") == "kept_out"
            self._made += [said["memory_id"]] if "memory_id" in said else said.get("memory_ids", [])
        except KeptOutError:
            refused = True
        self._outcomes[f"{step}: {'kept out' if refused else 'done'}"] += 1
        assert refused == (normalize_text(content) in self.kept_out.values()), (step, content)

    def _govern(self, step: str, one: str, memory: MemoryManager) -> None:
        match step:
            case "delete":
                memory.delete(one)
            case "restore":
                memory.restore(one)
            case "revert":
                memory.revert(one, to=1)
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
            case "back":
                found = self._engines[1].backups.restore(
                    self._backups[0], user_id=self._user, overwrite=one[-1] in "02468ace"
                )
                self._outcomes["back: hidden"] += found.kept_out
            case "sweep":
                self._engines[0].sweep(confirm=True)

    def answers(self, now: datetime) -> set[str]:
        """All that anybody can get to read: of now, and of some hours ago."""
        found: list[Any] = []
        for which in (0, 3):  # each process, and another agent
            memory = self.memory(which)
            for kind in KINDS:
                found += memory.list_memories(kind, include_archived=True)
                for moment in (None, now - timedelta(hours=len(self._made) % 7)):
                    found += memory.retrieve("Ann Bob Eve", kind, top_k=100, as_of=moment)
            for one in dict.fromkeys(self._made[-12:]):
                with suppress(HoldfastError):
                    found += [memory.get(one), *memory.history(one)]
        return {normalize_text(one["content"]) for one in found}


@everywhere
@soak
def test_a_text_that_is_kept_out_never_comes_back(
    home: Path, clock: FakeClock, engine_name: str, record_property: Callable[[str, object], None]
) -> None:
    outcomes, users = Counter[str](), count()

    @settings(max_examples=times(12, engine_name))
    @given(actions=ACTIONS, days=st.integers(0, 20))
    def tell(actions: list[Any], days: int) -> None:
        processes = Processes([one, other], f"user {next(users)}", outcomes)
        for action in actions:
            try:
                processes.act(*action)
            except HoldfastError as refused:
                outcomes[f"{action[0]}: {refused.code}"] += 1
            assert processes.answers(clock()).isdisjoint(processes.kept_out.values()), action
            clock.advance(hours=1)
        clock.advance(days=days)
        one.sweep(confirm=True)
        assert processes.answers(clock()).isdisjoint(processes.kept_out.values())

    with Holdfast.open(home=home, clock=clock) as one, Holdfast.open(home=home, clock=clock) as other:
        tell()
    for outcome, often in sorted(outcomes.items()):
        record_property(outcome, often)
    if times(12, engine_name) >= 12:
        wanted = {f"{step}: {how}" for step in WRITES for how in ("done", "kept out")}
        wanted |= {"restore: kept_out", "restore: done", "revert: done", "back: hidden", "lift: done"}
        assert wanted <= outcomes.keys(), wanted - outcomes.keys()
