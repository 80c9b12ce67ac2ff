"""``holdfast prove``: whether what was deleted is forgotten, by Holdfast or by another system."""

from __future__ import annotations

from typing import Any

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import only_json
from holdfast.edges.cli.output import Output


@command(app, "prove", only_json)
def prove(call: Call, *, system: str = "holdfast", adapter: str | None = None, server: str | None = None) -> Any:
    """Hold a system to what deleting means: out of search, of every process, of backups, and of every byte.

    It works in a temporary folder; nothing of yours is read or changed. Ends with exit code 3 if something that the
    system claims does not hold. The same without the rest of Holdfast: python -m holdfast_prove.

    Options:
        [SYSTEM]  holdfast (if not given), holdfast-postgres, mem0, chroma, langgraph-memory, langgraph-sqlite,
          langgraph-postgres or inspeximus, where it is installed.
        --adapter module:Class  Another system, by its adapter.
        --server URL  The PostgreSQL server of systems that need one; databases are made on it and dropped.

    Examples:
        holdfast prove langgraph-memory
    """
    from holdfast_prove.__main__ import exit_code, run  # noqa: PLC0415 - no other command needs it

    try:
        found = run(adapter or system, server, as_json=call.as_json)
    except (LookupError, ImportError, AttributeError) as problem:
        raise InvalidInputError(f"the system cannot be tried here: {problem}") from None
    return Output(found, text="", code=exit_code(found))
