"""An operation: one row that says what it is called, what it takes and gives, which right it needs, how far it reaches.

Its function does the work; the docstring of the function describes it to people, to programs and to models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from inspect import cleandoc, signature
from typing import Any, NamedTuple, TypeVar, get_type_hints, is_typeddict

from pydantic import BaseModel

from holdfast.core.access import Principal, Right
from holdfast.core.audit import REST, acting_as
from holdfast.edges.access.gate import Gate
from holdfast.edges.operations.models import Input
from holdfast.edges.operations.outputs import output_of
from holdfast.edges.operations.pagination import Paged

_Function = TypeVar("_Function", bound=Callable[..., Any])


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


class Form(StrEnum):
    """In which form an operation gives its result; its function says so by what it takes beside its input."""

    DOCUMENT = "document"
    LINES = "lines"
    """It takes long and reports progress: the function takes ``progress``."""
    FILE = "file"
    """A file that is sent while it is written: the function takes ``file``."""


class Brief(NamedTuple):
    """What a tool gives instead of an operation's output: less, because a model reads it."""

    output: type[BaseModel]
    shorten: Callable[[Any, Any], dict[str, Any]]
    """Makes it of the operation's result and its input."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that can be asked for."""

    name: str
    group: str
    description: str
    right: Right
    reach: Reach
    method: str
    path: str
    """Below ``/v1``, with names of input fields in braces."""
    in_query: frozenset[str]
    """Fields of the input that are part of the query even where there is a body."""
    inputs: type[Input]
    output: type[BaseModel]
    run: Callable[..., Any]
    form: Form
    tool: str | None
    """Its name as an MCP tool, where it is one."""
    brief: Brief | None
    status: int
    errors: frozenset[int]
    """HTTP statuses that it may fail with, beside those that any operation may."""
    is_long: bool
    """It may take longer than a request usually may."""

    @property
    def summary(self) -> str:
        """The description in one line."""
        return " ".join(self.description.partition("\n\n")[0].split()).rstrip(".")

    def bind(self, gate: Gate, asked: Input, edge: str = REST) -> Callable[..., Any]:
        """What does it, where the gate lets the caller reach that far; ``ForbiddenError`` where not.

        The answer is called without arguments, or, by the operation's form, with the progress or the file. What it
        writes to the audit chain names the caller's key, or the edge where there is none.
        """
        if isinstance(asked, Paged):
            asked.bind(self.name, gate.tenant_id)
        return partial(_run_as, gate.principal.actor(edge), partial(self.run, self._reach(gate, asked), asked))

    def is_for(self, caller: Principal) -> bool:
        """Whether a caller can get anything but a refusal from it."""
        bound = caller.users is not None or caller.agents is not None
        return caller.allows(self.right) and not (bound and self.reach in (Reach.TENANT, Reach.STORE))

    def _reach(self, gate: Gate, asked: Any) -> Any:
        """What the function works on. There is no other way to it than the gate."""
        right = self.right
        match self.reach:
            case Reach.CALLER:
                return gate
            case Reach.MEMORY:
                return gate.memory(right, asked.user_id, asked.agent_id, getattr(asked, "session_id", None))
            case Reach.USER:
                return gate.user(right, asked.user_id)
            case Reach.WHOSE:
                return gate.tenant(right) if asked.user_id is None else gate.user(right, asked.user_id)
            case Reach.TENANT:
                return gate.tenant(right)
            case Reach.STORE:
                return gate.store(right)


def _run_as(actor: str, run: Callable[..., Any], *args: Any) -> Any:
    with acting_as(actor):
        return run(*args)


class Group:
    """The operations on one resource, in the order in which they are documented."""

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about
        self.operations: list[Operation] = []

    def add(
        self,
        rest: str,
        right: Right,
        reach: Reach,
        output: type,
        *,
        tool: str | None = None,
        brief: Brief | None = None,
        status: int = 200,
        errors: Iterable[int] = (),
        is_long: bool = False,
    ) -> Callable[[_Function], _Function]:
        """Declare a function as an operation.

        ``rest`` is its method and path, such as ``PATCH /memories/{memory_id}?user_id&agent_id``: the fields of its
        input that the path does not name are the body, or the query of what has no body. The function takes what it
        works on, its input, and (``progress`` or ``file``) where it reports to. ``output`` is a model, or what a verb
        of Holdfast returns.
        """
        method, _, target = rest.partition(" ")
        path, _, query = target.partition("?")

        def register(function: _Function) -> _Function:
            _, asked, *stream = signature(function).parameters
            form = {"progress": Form.LINES, "file": Form.FILE}[stream[0]] if stream else Form.DOCUMENT
            self.operations.append(
                Operation(
                    name=function.__name__,
                    group=self.name,
                    description=cleandoc(function.__doc__ or ""),
                    right=right,
                    reach=reach,
                    method=method,
                    path=path,
                    in_query=frozenset(query.split("&")) if query else frozenset(),
                    inputs=get_type_hints(function)[asked],
                    output=output_of(output) if is_typeddict(output) else output,
                    run=function,
                    form=form,
                    tool=tool,
                    brief=brief,
                    status=status,
                    errors=frozenset(errors),
                    is_long=is_long or form is not Form.DOCUMENT,
                )
            )
            return function

        return register
