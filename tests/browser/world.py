"""A store as somebody would look at it in the console: some months of a few people's memory, under a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from clocks import FakeClock
from holdfast import Holdfast

BEGAN = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
NOW = datetime(2026, 11, 15, 23, 4, tzinfo=UTC)
USER, OTHER, AGENT, SESSION, TOOL = "user_123", "user_88", "travel_agent", "sess_abc123", "route_finder"
_FACTS = (
    ("Prefers trains to planes for journeys under six hours", {"topic": "travel", "tags": ["preference"]}),
    ("Is allergic to peanuts and shellfish", {"topic": "health", "tags": ["medical"]}),
    ("Works as a structural engineer for bridges", {"topic": "work"}),
    ("Has a sister called Maria who lives in Turin", {"topic": "family"}),
    ("Likes quiet hotels near the station", {"topic": "travel"}),
    ("Reads crime novels on journeys", {"topic": "leisure"}),
    ("Drinks green tea in the morning and no coffee", {"topic": "food"}),
    ("Pays with the company's card for work journeys", {"topic": "work"}),
)
_NOTES = (
    "Asked for a window seat",
    "Booked a room for two nights",
    "Wants invoices as PDF",
    "Moved the dinner to Friday",
)


@dataclass
class World:
    """What there is, and keys to it."""

    holdfast: Holdfast
    clock: FakeClock
    ids: dict[str, str] = field(default_factory=dict)
    certificate: Any = None
    keys: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def key(self, *rights: str, **bounds: Any) -> str:
        """The secret of a key with these rights."""
        name = (*rights, *sorted((part, str(value)) for part, value in bounds.items()))
        if name not in self.keys:
            tenant = "*" if bounds.pop("operator", False) else "default"
            _, self.keys[name] = self.holdfast.access.create("-".join(rights), rights=rights, tenant=tenant, **bounds)
        return self.keys[name]


def fill_store(holdfast: Holdfast, clock: FakeClock) -> World:
    """Let some months pass in a store."""
    world = World(holdfast, clock)
    clock.now = BEGAN
    holdfast.agents.add(AGENT, "Books journeys", {"team": "travel"})
    holdfast.agents.add("support_agent", "Answers questions about orders")
    holdfast.tools.add(TOOL, "Finds a way by train", {"version": 3})
    _remember(world)
    _govern(world)
    _look_after(world)
    return world


def _remember(world: World) -> None:
    holdfast, clock, ids = world.holdfast, world.clock, world.ids
    memory = holdfast.manager(USER, AGENT, SESSION)
    ids["home"] = memory.add("User lives in Paris", metadata={"topic": "home"}, key="home_city")["memory_id"]
    memory.short_term.add_message("user", "I live in Paris now. Can you find me a train to Turin on Friday?")
    memory.short_term.add_message("assistant", "The 07:42 from Gare de Lyon arrives at 13:30. Shall I book it?")
    memory.add_many([text for text, _ in _FACTS], metadata=[metadata for _, metadata in _FACTS])
    memory.add("Answer briefly, and name prices in euros", "persona")
    ids["entity"] = memory.entity.add("Maria", "person", {"relation": "sister"})
    memory.add({"booking": "ZRH-771", "nights": 3}, "structured", {"collection": "bookings"})
    memory.episodic.record_episode("Book a train to Turin", ["looked up trains", "booked the 07:42"])
    for number in range(6):
        user = holdfast.manager(f"user_{80 + 2 * number}", "support_agent", f"sess_{number}")
        user.add_many([f"{note}, order {number}{index}" for index in range(6) for note in _NOTES])
        user.short_term.add_message("user", "Where is my order?")
    clock.advance(days=88)
    memory.delete(ids["home"])
    clock.advance(days=7)
    memory.restore(ids["home"])
    clock.advance(days=65)
    memory.correct(ids["home"], "User moved to Lyon in August", reason="the user said so")
    memory.add("Prefers trains from Part-Dieu", metadata={"topic": "travel"}, derived_from=[ids["home"]])


def _govern(world: World) -> None:
    holdfast, clock, ids = world.holdfast, world.clock, world.ids
    holdfast.policies.set("history", user_id=OTHER, delete_after_days=200, confirm=True)
    holdfast.policies.set("episodic", agent_id=AGENT, archive_after_days=60, confirm=True)
    ids["hold"] = holdfast.holds.add(user_id=OTHER, reason="Case 4711, until the court has decided", author="legal").id
    holdfast.quotas.set("long_term", max_memories=500, user_id=USER)
    clock.now = datetime(2026, 11, 1, 3, tzinfo=UTC)
    holdfast.sweep(confirm=True)
    for day in range(2, 15):
        clock.now = datetime(2026, 11, day, 3, tzinfo=UTC)
        memory = holdfast.manager(f"user_{80 + 2 * (day % 4)}", "support_agent", "sess_new")
        added = memory.add_many([f"{note}, order {day}7" for note in _NOTES[day % 4 :]])["memory_ids"]
        for memory_id in added[: 1 + day % 3]:
            memory.delete(memory_id)
        holdfast.sweep(confirm=True)


def _look_after(world: World) -> None:
    holdfast, clock = world.holdfast, world.clock
    gone = holdfast.manager("user_gone", AGENT)
    gone.add_many(["Likes jazz", "Lives in Oslo"])
    clock.now = NOW
    holdfast.sweep(confirm=True)
    holdfast.schedule.run_due()
    world.certificate = holdfast.erase_user("user_gone").certificate
    backup = holdfast.backups.create(confirm=True)
    world.ids["backup"] = backup.id
    holdfast.backups.verify(backup.id, restore=True)
    memory = holdfast.manager(USER, AGENT, SESSION)
    world.ids["binned"] = memory.add("Wants a wake-up call at six", metadata={"topic": "travel"})["memory_id"]
    memory.delete(world.ids["binned"])
    memory.short_term.add_message("user", "I moved to Lyon. Please use Part-Dieu from now on.")
    memory.short_term.add_message("assistant", "Noted. Your journeys start at Lyon Part-Dieu.")
