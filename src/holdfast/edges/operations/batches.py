"""Batches: several operations in one request. Each is carried out by itself, and has a result of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar

from pydantic import Field, ValidationError, WrapValidator, model_validator

from holdfast.core.audit import REST
from holdfast.core.clock import watch
from holdfast.core.errors import InvalidInputError
from holdfast.edges.access.gate import Gate
from holdfast.edges.operations.conversations import sessions
from holdfast.edges.operations.errors import FormError, form_error, publish
from holdfast.edges.operations.memories import WHO, memories
from holdfast.edges.operations.models import MEMORY_ID, Input, check_json, example
from holdfast.edges.operations.operation import CALLER, READ, Group
from holdfast.edges.operations.outputs import ListOf

_Input = TypeVar("_Input", bound=Input)
batches = Group("batches", "Several operations in one request, each with a result of its own.")
MAX_ITEMS: Final = 1_000
_INPUT: Final = "What the operation takes, in one object: what its path, its query and its body have."
Name = Literal[
    "add_memory", "recall", "read_context", "get_memory", "update_memory", "correct_memory", "delete_memory",
    "restore_memory", "add_message",
]  # fmt: skip
_OPERATIONS: Final = MappingProxyType({one.name: one for group in (memories, sessions) for one in group.operations})


class BatchItem(Input):
    """One operation of a batch."""

    model_config = example({"operation": "add_memory", "input": {**WHO, "content": "Ann likes green tea."}})

    operation: Name = Field(description="Which operation.")
    input: dict[str, Any] = Field(description=_INPUT)


class Batch(Input):
    """Operations to be carried out, one after the other."""

    model_config = example(
        {
            "items": [
                {"operation": "add_memory", "input": {**WHO, "content": "Ann likes green tea."}},
                {"operation": "recall", "input": {**WHO, "query": "What does Ann drink?"}},
                {"operation": "delete_memory", "input": {**WHO, "memory_id": MEMORY_ID}},
            ]
        }
    )

    items: list[Annotated[BatchItem | Any, WrapValidator(lambda given, _check: given)]] = Field(
        min_length=1, max_length=MAX_ITEMS, description="The operations. One that cannot be read is its own failure."
    )

    @model_validator(mode="before")
    @classmethod
    def _check_json(cls, given: Any) -> Any:
        """Each item is checked by itself."""
        check_json({**given, "items": []} if isinstance(given, dict) else given)
        return given


class _Problem(TypedDict):
    code: str
    """What programs test, as in any other error."""
    detail: str
    retryable: bool


class ItemProblem(_Problem, total=False):
    """Why an item was not carried out."""

    errors: list[dict[str, str]]
    """What is wrong with the form of its input."""


class _Result(TypedDict):
    status: int
    """The HTTP status that the operation would have been answered with by itself."""


class ItemResult(_Result, total=False):
    """What became of an item."""

    result: dict[str, Any]
    problem: ItemProblem


Once = Callable[[int, BatchItem, Callable[[], ItemResult]], ItemResult]
"""Carries the item of a number out once, however often it is sent."""


@batches.add("POST /batch", READ, CALLER)
def run_batch(gate: Gate, asked: Batch, once: Once | None) -> ListOf[ItemResult]:
    """Carry out up to 1,000 operations in order, each by itself: what fails does not keep the others from being done.

    The results are in the order of the items; `status` and `problem` tell those that failed, and why. Each item needs
    the right of its operation. An `Idempotency-Key` is for every item by its number: a batch that is sent again with
    the same key carries out what was not carried out, and answers alike for the rest. Sent as `application/x-ndjson`,
    with an item on each line and without end, it is carried out while it arrives, and answered in lines: read them
    while you send.
    """
    return {"items": [run_item(gate, item, number, once) for number, item in enumerate(watch(iter(asked.items)))]}


def run_line(gate: Gate, line: bytes, number: int, once: Once | None = None, edge: str = REST) -> ItemResult:
    """Carry out the item that stands on a line; what became of it."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return describe_failure(InvalidInputError("the line is not JSON; send one item on each line, as JSON in UTF-8"))
    return run_item(gate, given, number, once, edge)


def run_item(gate: Gate, given: object, number: int, once: Once | None = None, edge: str = REST) -> ItemResult:
    """Carry out one item of a batch, as it came; what became of it."""

    def work() -> ItemResult:
        asked = _read(item.input, operation.inputs)
        return {"status": operation.status, "result": operation.bind(gate, asked, edge)()}

    try:
        item = _read(given, BatchItem)
        operation = _OPERATIONS[item.operation]
        return work() if once is None or operation.right is READ else once(number, item, work)
    except Exception as problem:  # noqa: BLE001 - the edge: whatever fails is the result of this item
        return describe_failure(problem)


def describe_failure(problem: Exception) -> ItemResult:
    """The result of an item that failed."""
    known = publish(problem)
    said: ItemProblem = {"code": known.code, "detail": known.message, "retryable": known.retryable}
    if isinstance(problem, FormError):
        said["errors"] = problem.errors
    return {"status": known.status, "problem": said}


def _read(given: object, model: type[_Input]) -> _Input:
    """What a part of a batch takes, from JSON; ``FormError`` if it has another form."""
    try:
        return model.model_validate(given)
    except ValidationError as wrong:
        found = [{**one, "loc": ("body", *one["loc"])} for one in wrong.errors(include_input=False)]
        raise form_error(found, given, model) from None
