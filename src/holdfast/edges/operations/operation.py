"""An operation: one row that says what it is called, what it takes and gives, which right it needs, how far it reaches.

Its function does the work; the docstring of the function describes it to people, to programs and to models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from inspect import Parameter, cleandoc, signature
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel

from holdfast.core.access import Principal, Right
from holdfast.core.audit import REST, acting_as
from holdfast.edges.access.gate import Gate
from holdfast.edges.operations.models import Input, Paged, Scoped
from holdfast.edges.operations.outputs import output_of

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NAMES: Final = re.compile(r"{(\w+)}")


class Reach(StrEnum):
    """How far an operation reaches, and so what its function works on."""

    CALLER = "caller"
    """Only who calls. The function gets the gate."""
    MEMORY = "memory"
    """The memory of one user as one agent sees it. The function gets that memory; its input says whose."""
    USER = "user"
    """A person as a whole, whichever agent it is with. The function gets the tenant's engine, as below."""
    WHOSE = "whose"
    """A person as a whole where one is named, the tenant where none is."""
    TENANT = "tenant"
    """One tenant as a whole."""
    STORE = "store"
    """All tenants: operators only."""


CALLER, MEMORY, USER, WHOSE, TENANT, STORE = Reach
READ, WRITE, GOVERN, ADMIN = Right


class Form(StrEnum):
    """In which form an operation gives its result; its function says so by what it takes beside its input."""

    DOCUMENT = "document"
    LINES = "lines"
    """It takes long and reports progress: the function takes ``progress``."""
    FILE = "file"
    """A file that is sent while it is written: the function takes ``file``."""
    ITEMS = "items"
    """Operations that are carried out one by one: the function takes ``once``, which carries one out once."""


class Brief(NamedTuple):
    """What a tool gives instead of an operation's output: less, because a model reads it."""

    output: type[BaseModel]
    shorten: Callable[[Any, Any], dict[str, Any]]
    """Makes it of the operation's result and its input."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One thing that can be asked for."""

    run: Callable[..., Any]
    group: str
    method: str
    path: str
    """Below ``/v1``, with names of input fields in braces."""
    right: Right
    reach: Reach
    given_output: Any
    tool: str | None
    """Its name as an MCP tool, where it is one."""
    tool_defaults: Mapping[str, Any]
    """What fields of its input are where a tool's call leaves them out, if that is not what they are elsewhere."""
    brief: Brief | None
    status: int
    errors: frozenset[int]
    """HTTP statuses that it may fail with, beside those that any operation may."""
    may_be_long: bool
    is_quick: bool
    """Whether it mostly takes less than a millisecond: a service may do it without a thread."""

    @cached_property
    def name(self) -> str:
        """What the function is called."""
        return self.run.__name__

    @cached_property
    def description(self) -> str:
        """What it does, in a paragraph or more."""
        return cleandoc(self.run.__doc__ or "")

    @cached_property
    def summary(self) -> str:
        """The description in one line."""
        return " ".join(self.description.partition("\n\n")[0].split()).rstrip(".")

    @cached_property
    def inputs(self) -> type[Input]:
        """What it takes."""
        found: type[Input] = get_type_hints(self.run)[list(signature(self.run).parameters)[1]]
        return found

    @cached_property
    def output(self) -> type[BaseModel]:
        """What it gives."""
        given = self.given_output or get_type_hints(self.run)["return"]
        if given is Any:
            raise TypeError(f"the operation {self.name} does not say what it gives; annotate what it returns")
        return output_of(given)

    @cached_property
    def form(self) -> Form:
        """In which form it gives its result."""
        stream = list(signature(self.run).parameters.values())[2:]
        if not stream or stream[0].default is not Parameter.empty:
            return Form.DOCUMENT
        return {"progress": Form.LINES, "file": Form.FILE, "once": Form.ITEMS}[stream[0].name]

    @cached_property
    def takes_progress(self) -> bool:
        """Whether it can tell how far it is. Where its function need not be given a progress, only the console asks."""
        return "progress" in signature(self.run).parameters

    @cached_property
    def is_paged(self) -> bool:
        """Whether it gives a list some at a time."""
        return issubclass(self.inputs, Paged)

    @property
    def is_long(self) -> bool:
        """Whether it may take longer than a request usually may."""
        return self.may_be_long or self.form in (Form.LINES, Form.FILE)

    @cached_property
    def in_path(self) -> frozenset[str]:
        """The fields of the input that the path names."""
        return frozenset(_NAMES.findall(self.path))

    @cached_property
    def in_body(self) -> frozenset[str]:
        """The fields of the input that the body has; all others that the path does not name are in the query."""
        if self.method not in ("POST", "PUT", "PATCH"):
            return frozenset()
        outside = self.in_path | (Scoped.model_fields.keys() if "memory_id" in self.in_path else frozenset())
        return frozenset(self.inputs.model_fields.keys() - outside)

    def bind(self, gate: Gate, asked: Input, edge: str = REST) -> Callable[..., Any]:
        """What does it, where the gate lets the caller reach that far; ``ForbiddenError`` where not.

        The answer is called without arguments, or, by the operation's form, with the progress or the file. What it
        writes to the audit chain names the caller's key, or the edge where there is none.
        """
        if self.is_paged:
            asked.bind(self.name, gate.tenant_id)  # type: ignore[attr-defined]
        run = partial(self.run, self._reach(gate, asked), asked)
        if gate.telemetry is not None:
            run = partial(_run_traced, gate.telemetry.operation(self.name, edge, asked.__dict__), run)
        return partial(_run_as, gate.principal.actor(edge), run)

    def is_for(self, caller: Principal) -> bool:
        """Whether a caller can get anything but a refusal from it."""
        if not caller.allows(self.right) or (caller.agents is not None and self.reach not in (CALLER, MEMORY)):
            return False
        if self.reach in (TENANT, STORE) and caller.users is not None:
            return False
        return self.reach is not STORE or caller.is_operator

    def _reach(self, gate: Gate, asked: Any) -> Any:
        """What the function works on. There is no other way to it than the gate."""
        if self.reach is MEMORY:
            given = asked.__dict__  # models look long for what they do not have
            scope = (asked.user_id, asked.agent_id, given.get("session_id"))
            return gate.memory(self.right, *scope, auto_prune=given.get("auto_prune", False))
        match self.reach:
            case Reach.CALLER:
                return gate
            case Reach.USER:
                return gate.user(self.right, asked.user_id)
            case Reach.WHOSE:
                return gate.tenant(self.right) if asked.user_id is None else gate.user(self.right, asked.user_id)
            case Reach.TENANT:
                return gate.tenant(self.right)
            case Reach.STORE:
                return gate.store(self.right)


def _run_traced(span: AbstractContextManager[None], run: Callable[..., Any], *args: Any) -> Any:
    with span:
        return run(*args)


def _run_as(actor: str, run: Callable[..., Any], *args: Any) -> Any:
    with acting_as(actor):
        return run(*args)


@dataclass
class Group:
    """The operations on one resource, in the order in which they are documented."""

    name: str
    about: str
    operations: list[Operation] = field(default_factory=list)

    def add(
        self,
        rest: str,
        right: Right,
        reach: Reach,
        output: Any = None,
        *,
        tool: str | None = None,
        tool_defaults: Mapping[str, Any] = MappingProxyType({}),
        brief: Brief | None = None,
        status: int = 200,
        errors: Iterable[int] = (),
        is_long: bool = False,
        is_quick: bool = False,
    ) -> Callable[[_Function], _Function]:
        """Declare a function as an operation.

        ``rest`` is its method and path, such as ``PATCH /memories/{memory_id}``: the fields of its input that the path
        does not name are the body, or the query of what has no body; where the path names a memory, whose it is stands
        in the query. The function takes what it works on, its input, and (``progress`` or ``file``) where it reports
        to. What it gives is what the function says that it returns, or else ``output``.
        """
        method, _, path = rest.partition(" ")
        times = (is_long, is_quick)
        row = (method, path, right, reach, output, tool, tool_defaults, brief, status, frozenset(errors), *times)

        def register(function: _Function) -> _Function:
            self.operations.append(Operation(function, self.name, *row))
            return function

        return register
