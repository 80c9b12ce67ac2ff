"""Many at once, through several engines: nobody waits in vain for another, and what is left is sound."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import raw
from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import ConflictError, HeldError, NotFoundError
from holdfast.storage.relational.database import DuplicateError
from lifecycle.soundness import check_sound


def deeds(holdfast: Holdfast, clock: FakeClock, chance: random.Random) -> list[Callable[[], object]]:
    """What somebody may do next."""
    user, agent, session = chance.choice(("ann", "bob")), chance.choice(("guide", "cook")), chance.choice("xy")
    memory = holdfast.manager(user, agent, session)
    kind = chance.choice(("long_term", "episodic", "persona"))

    def some() -> str:
        found = memory.list_memories(kind)
        return chance.choice(found)["memory_id"] if found else "none"

    return [
        lambda: memory.add("the train to Rome " * chance.choice((1, 200)), kind),
        lambda: memory.add_many(["by night", "by day"], "long_term"),
        lambda: memory.add_with_auto_prune("one more"),
        lambda: memory.short_term.add_message("user", "hello"),
        lambda: memory.entity.relate(chance.choice("ABC"), "knows", chance.choice("ABC")),
        lambda: memory.structured.put("trips", {"n": chance.random()}, key=chance.choice("ab")),
        lambda: memory.update(some(), "changed"),
        lambda: memory.delete(some()),
        lambda: memory.retrieve("train", ["long_term", "episodic"]),
        lambda: memory.delete_user_memories(user),
        lambda: holdfast.recycle.restore(user_id=user),
        lambda: holdfast.sessions.remove(agent, session, user_id=user),
        lambda: holdfast.policies.set(kind, user_id=user, delete_after_days=chance.randint(5, 50), confirm=True),
        lambda: holdfast.policies.set("*", agent_id=agent, delete_after_days=chance.randint(5, 50), confirm=True),
        lambda: holdfast.holds.release(holdfast.holds.add(user_id=user, reason="a case", author="counsel").id),
        lambda: (holdfast.agents.add(agent), holdfast.agents.remove(agent), holdfast.agents.restore(agent)),
        lambda: holdfast.sweep(confirm=True),
        holdfast.schedule.run_due,
        holdfast.audit.seal,
        lambda: clock.advance(days=chance.choice((0, 1, 20))),
    ]


@contextmanager
def told_of_others() -> Iterator[None]:
    """One may be told of what another has just done, but never by a constraint of the database."""
    try:
        yield
    except (ConflictError, HeldError, NotFoundError) as answer:
        if isinstance(answer.__cause__, DuplicateError):
            raise


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_many_do_at_once_nobody_fails_for_it(home: Path, clock: FakeClock, seed: int) -> None:
    unexpected: list[BaseException] = []

    def live(holdfast: Holdfast, chance: random.Random) -> None:
        try:
            for _ in range(40):
                with told_of_others():
                    chance.choice(deeds(holdfast, clock, chance))()
        except BaseException as problem:  # noqa: BLE001 - told below
            unexpected.append(problem)

    with ExitStack() as stack:
        engines = [stack.enter_context(Holdfast.open(home=home, clock=clock)) for _ in range(2)]
        threads = [threading.Thread(target=live, args=(engines[n % 2], random.Random(10 * seed + n))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert unexpected == []
        raw.run(engines[0], "UPDATE leases SET expires_at = 0")
        engines[0].sweep(confirm=True)
        check_sound(engines[0])
        assert engines[0].sweep(dry_run=True, confirm=True).lines == ()
