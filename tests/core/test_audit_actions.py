"""Audit actions: one enumeration, and no other way to name one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast
from holdfast.core.audit import Action, Event
from holdfast.core.chain import closing_of
from holdfast.core.errors import InvalidInputError

SOURCE = Path(holdfast.__file__).parent


def test_every_action_says_what_it_means() -> None:
    for action in Action:
        assert action.meaning.endswith("."), action
    assert len({action.meaning for action in Action}) == len(Action)


def test_every_action_is_written_somewhere() -> None:
    source = "".join(path.read_text() for path in SOURCE.rglob("*.py"))
    by_state = {Action.ARCHIVED, Action.DELETING}  # a record's move is written by the state that it leads to
    assert [action.name for action in Action if action not in by_state and f"Action.{action.name}" not in source] == []


def test_no_event_names_its_action_by_a_text() -> None:
    named = [
        f"{path.relative_to(SOURCE)}:{call.lineno}"
        for path in SOURCE.rglob("*.py")
        if "Event(" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Event"
        for argument in [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "action")]
        if isinstance(argument, ast.Constant | ast.JoinedStr)
    ]
    assert named == []


def test_an_unknown_action_cannot_be_written() -> None:
    with pytest.raises(InvalidInputError, match="there is no audit action 'invented'"):
        closing_of(Event(0, "invented", None, {}), "python")  # type: ignore[arg-type]
