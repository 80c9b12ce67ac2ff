"""A visit: one request to the console, by whom, and the only way in which a page gets at data.

Pages call operations by their names, through the gate, as REST and MCP do: the same keys, rights, tenants and bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from holdfast.core.access import Principal
from holdfast.core.audit import CONSOLE
from holdfast.core.errors import ForbiddenError
from holdfast.edges.access.gate import Gate
from holdfast.edges.operations.catalog import OPERATIONS
from holdfast.edges.operations.errors import form_error


class Visit:
    """What one request may ask for: operations that are declared for its page or action, and no others."""

    def __init__(self, gate: Gate, query: Mapping[str, str], declared: Collection[str], now: datetime) -> None:
        self.query = {name: value for name, value in query.items() if value != ""}
        """What the address asks for. A field that was left empty is not in it."""
        self.now = now
        """When it is asked, by the store's clock."""
        self._gate = gate
        self._declared = frozenset(declared)

    @property
    def caller(self) -> Principal:
        """Who asks."""
        return self._gate.principal

    @property
    def user_id(self) -> str | None:
        """Whose page is asked for; where nobody is named and the key is bound to users, the first of them."""
        return self.query.get("user_id") or min(self.caller.users or (), default=None)

    @property
    def tenant_id(self) -> str:
        """The tenant that is acted for."""
        return self._gate.tenant_id

    def may(self, name: str) -> bool:
        """Whether the caller can get anything but a refusal from an operation."""
        return OPERATIONS[name].is_for(self.caller)

    def check(self, name: str) -> None:
        """``ForbiddenError`` where the caller can get nothing but a refusal from an operation."""
        if not self.may(name):
            self._gate.check_right(OPERATIONS[name].right)
            raise ForbiddenError("the key is bound to users or agents; this concerns the whole tenant")

    def call(self, name: str, **fields: Any) -> Any:
        """What an operation gives. Texts are read as what its fields are; a field that is ``None`` is left out."""
        return self.bind(name, fields)()

    def bind(self, name: str, fields: Mapping[str, Any]) -> Callable[..., Any]:
        """An operation with its input, ready to run."""
        if name not in self._declared:
            raise ForbiddenError(f"the operation {name!r} is not declared for this page; add it to the page's row")
        operation = OPERATIONS[name]
        given = {field: value for field, value in fields.items() if value is not None}
        try:
            asked = operation.inputs.model_validate(given, strict=False)
        except ValidationError as wrong:
            raise form_error(wrong.errors(), None, operation.inputs) from None
        return operation.bind(self._gate, asked, CONSOLE)
