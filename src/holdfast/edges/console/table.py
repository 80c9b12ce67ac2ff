"""The table of the console: sections, their pages, and their actions. Routes, navigation and tests are made of it.

A page and an action name the operations that they call, and can call no other. What a caller's key may not use is not
shown to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.core.access import Principal
from holdfast.edges.console.visit import Visit
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.operations.operation import Form, Operation

#: Where the console is.
PREFIX: Final = "/console"
Fields = dict[str, Any]
_Show = TypeVar("_Show", bound=Callable[[Visit], Mapping[str, Any]])
_Preview = TypeVar("_Preview", bound=Callable[[Visit, Fields], Any])


@dataclass(frozen=True, eq=False)
class Page:
    """One page. Its function makes what its template shows; ``show_record`` has the template ``record.html``."""

    show: Callable[[Visit], Mapping[str, Any]]
    path: str
    title: str
    calls: Sequence[str]
    """The operations that it cannot do without. Where there are none, it is for whoever may use one of the others."""
    may_call: Sequence[str]
    """Operations that it shows more with, where the caller may use them."""

    @property
    def template(self) -> str:
        """The name of its template."""
        return f"{self.show.__name__.removeprefix('show_')}.html"

    def is_for(self, caller: Principal) -> bool:
        """Whether a caller can see anything on it but a refusal."""
        may = [OPERATIONS[name].is_for(caller) for name in self.calls or self.may_call]
        return all(may) if self.calls else any(may)


class Entry(NamedTuple):
    """Something that a person enters in the form of an action."""

    name: str
    label: str
    form: str = "text"
    """``text``, ``area``, ``number``, ``check``, ``choice``, ``json`` or ``file``."""
    hint: str = ""
    choices: Sequence[str] = ()
    needed: bool = True


class Undo(NamedTuple):
    """How to take something back: an action and its fields."""

    action: str
    fields: Fields
    label: str = "Undo"


class Effect(NamedTuple):
    """What an action would do, before it does it."""

    sentences: Sequence[str]
    """What it would do, in words."""
    rows: Sequence[tuple[str, Any]] = ()
    """What it comes to: names and values."""
    fields: Mapping[str, Any] = {}
    """What is sent with the confirmation beside what was entered: a digest of what was looked at."""
    is_possible: bool = True
    """Whether it can be confirmed at all."""


@dataclass(frozen=True, eq=False)
class Action:
    """One thing that can be done: its form, what shows its effect before, and what is said after it."""

    preview: Callable[[Visit, Fields], Effect | None]
    """What it would do; ``None`` while what was entered does not say."""
    name: str
    operation_name: str
    title: str
    button: str
    entries: Sequence[Entry]
    may_call: Sequence[str]
    describe: Callable[[Fields, Any], str]
    """What happened, in a sentence, by the fields and the result."""
    undo: Callable[[Fields, Any], Undo | None]
    back: Callable[[Fields], str]
    """Where to go after it: the address of a page."""
    result: str | None
    """The template that shows the result of a job."""
    arrange: Callable[[Any, Mapping[str, str]], Mapping[str, Any]]
    """What that template shows, by the result and what the job's address asks for."""
    forgets: Sequence[str]
    """Fields, of its input and of its result, that name whom it erased: they are not kept."""
    asks: str | None
    """The question whose job shows its effect, where that takes longer than a page may."""
    is_danger: bool
    is_question: bool
    """It only looks: it has nothing to confirm, and runs at once."""

    @cached_property
    def operation(self) -> Operation:
        """What it runs."""
        return OPERATIONS[self.operation_name]

    @property
    def sends_file(self) -> bool:
        """Whether what comes of it is a file, which is sent while it is written: no copy of it is left anywhere."""
        return self.operation.form is Form.FILE

    def is_for(self, caller: Principal) -> bool:
        """Whether a caller can get anything but a refusal from it."""
        return self.operation.is_for(caller)


@dataclass(eq=False)
class Section:
    """An entry of the navigation: pages, of which the first is what the entry opens, and actions."""

    name: str
    pages: list[Page] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    def page(
        self, path: str, *, calls: Sequence[str] = (), may_call: Sequence[str] = (), title: str | None = None
    ) -> Callable[[_Show], _Show]:
        """Declare a function as a page, at a path below the console's."""

        def register(show: _Show) -> _Show:
            self.pages.append(Page(show, PREFIX + path, title or self.name, calls, may_call))
            return show

        return register

    def action(
        self,
        operation: str,
        title: str,
        button: str,
        *,
        back: Callable[[Fields], str],
        describe: Callable[[Fields, Any], str],
        name: str | None = None,
        entries: Sequence[Entry] = (),
        may_call: Sequence[str] = (),
        undo: Callable[[Fields, Any], Undo | None] = lambda _fields, _result: None,
        result: str | None = None,
        arrange: Callable[[Any, Mapping[str, str]], Mapping[str, Any]] = lambda _result, _query: {},
        forgets: Sequence[str] = (),
        asks: str | None = None,
        is_danger: bool = False,
        is_question: bool = False,
    ) -> Callable[[_Preview], _Preview]:
        """Declare an action by the function that shows its effect. ``name`` is that of the operation, if not given."""

        def register(preview: _Preview) -> _Preview:
            row = (preview, name or operation, operation, title, button, entries, may_call, describe, undo, back)
            self.actions.append(Action(*row, result, arrange, forgets, asks, is_danger, is_question))
            return preview

        return register
