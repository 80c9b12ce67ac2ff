"""Sixty days of a support desk on LangGraph, in a few seconds and without a model.

The graph and its saver are LangGraph's own; Holdfast governs the saver's database from outside. One simulated clock
moves both: LangGraph writes the time of a checkpoint into its id.

    pip install "holdfast[langgraph]" langgraph langgraph-checkpoint-sqlite
    python examples/langgraph_support_desk.py
"""

from __future__ import annotations

import operator
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from holdfast import ConflictError, Holdfast
from holdfast.integrations.langgraph.governed import Governed
from holdfast.integrations.langgraph.threads import Threads

BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)


class Clock:
    """The time, for Holdfast and for LangGraph."""

    def __init__(self) -> None:
        self.now = BEGIN
        vars(checkpoint_ids)["time"] = SimpleNamespace(time_ns=lambda: int(self.now.timestamp() * 1e9))

    def __call__(self) -> datetime:
        return self.now

    @property
    def day(self) -> int:
        """How many days have passed."""
        return (self.now - BEGIN).days


class Case(TypedDict):
    """What the desk knows of a case."""

    notes: Annotated[list[str], operator.add]


def make_desk(saver: Any) -> Any:
    """A graph that notes what a customer says, and asks whether the case is closed."""

    def take(state: Case) -> Case:
        return {"notes": [f"noted: {state['notes'][-1]}"]}

    def ask(state: Case) -> Case:  # noqa: ARG001 - LangGraph gives it by this name
        return {"notes": [f"closed: {interrupt('Is the case closed?')}"]}

    graph = StateGraph(Case)
    graph.add_node("take", take)
    graph.add_node("ask", ask)
    graph.add_edge(START, "take")
    graph.add_edge("take", "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def case_of(customer: str, number: int = 1) -> Any:
    """What a run is called with: the keys by which Holdfast knows whose a thread is."""
    return {"configurable": {"thread_id": f"{customer}-{number}", "user_id": customer, "assistant_id": "support"}}


def main() -> None:
    """Let sixty days pass."""
    clock = Clock()
    with (
        tempfile.TemporaryDirectory() as folder,
        SqliteSaver.from_conn_string(str(Path(folder) / "threads.db")) as saver,
        Holdfast.open(home=Path(folder) / "holdfast", clock=clock) as holdfast,
    ):
        saver.setup()
        desk = make_desk(saver)
        threads = Threads(str(Path(folder) / "threads.db"), engine=holdfast)

        def tell(text: str) -> None:
            print(f"day {clock.day:2}: {text}")

        for customer in ("ann", "bob", "cleo", "dan"):
            desk.invoke({"notes": [f"{customer} has a question"]}, case_of(customer))
        holdfast.holds.add(user_id="cleo", reason="a dispute about an invoice", author="legal")
        tell(f"{threads.status()['threads']} threads, all of them waiting for an answer; cleo's is on hold")

        for _ in range(60):
            clock.now += timedelta(days=1, seconds=1)
            if clock.day % 7 == 0 and clock.day < 50:
                desk.invoke(Command(resume=f"no, said ann in week {clock.day // 7}"), case_of("ann"))
                desk.invoke({"notes": ["ann again"]}, case_of("ann"))
            if clock.day == 25:
                exact = make_desk(Governed(saver, threads))
                tell(f"bob's thread can be resumed: {bool(exact.get_state(case_of('bob')).next)}")
            report: Any = holdfast.sweep()
            for action, count in report.counts.items():
                if count:
                    tell(f"the daily sweep: {action} {count}; {threads.status()['in_bin']} in the recycle bin")
            if clock.day == 40:
                tell(f"bob comes back: {holdfast.recycle.restore(session_id='bob-1')} thread restored")
                said = desk.invoke(Command(resume="yes"), case_of("bob"))["notes"]
                tell(f"his case goes on where it stopped: {said}")
            if clock.day == 46:
                try:
                    holdfast.recycle.restore(session_id="dan-1")
                except (ConflictError, LookupError) as problem:
                    tell(f"dan comes too late: {problem}")
            if clock.day == 50:
                erasure = holdfast.erase_user("ann")
                tell(f"ann is erased: {sum(place.removed for place in erasure.places)} rows, certificate signed")

        left = {thread for thread in ("ann", "bob", "cleo", "dan") if desk.get_state(case_of(thread)).values}
        tell(f"threads that are left: {sorted(left)}; the hold keeps cleo's, 30 days after its time")


if __name__ == "__main__":
    main()
