"""What an adapter is: a plain class with six methods, and more of them where the system claims more."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

#: A file, a folder, or the name of a place with the bytes that are in it.
Place = Path | tuple[str, bytes]
#: What proves an erasure, and the public key to check it with.
Proof = tuple[bytes, bytes]
#: For each obligation, the sentence of the documentation that claims it, and where that is.
Claims = Mapping[str, tuple[str, str]]

#: What every adapter has.
REQUIRED: Final = ("add", "search", "get", "delete", "erase_user", "places")
#: The adapters that are here, by what people call the systems.
SYSTEMS: Final = {
    "holdfast": "holdfast_prove.systems.holdfast_stores:HoldfastOnSqlite",
    "holdfast-postgres": "holdfast_prove.systems.holdfast_stores:HoldfastOnPostgres",
    "mem0": "holdfast_prove.systems.mem0_memory:Mem0",
    "chroma": "holdfast_prove.systems.chroma_collection:Chroma",
    "langgraph-memory": "holdfast_prove.systems.langgraph_stores:LangGraphInMemory",
    "langgraph-sqlite": "holdfast_prove.systems.langgraph_stores:LangGraphOnSqlite",
    "langgraph-postgres": "holdfast_prove.systems.langgraph_stores:LangGraphOnPostgres",
    "inspeximus": "holdfast_prove.systems.inspeximus_memory:InspeximusMemory",
}


class Adapter(Protocol):
    """The six methods that every adapter has. It need not inherit from this class.

    These are looked for, too. An obligation that needs one which is missing is not claimed:

    ``reopen()``
        close the store and open it again, as after a restart
    ``reindex()``
        build the indexes anew from what is stored
    ``backup() -> str``, ``restore(backup)``
        make a backup; restore it into an empty place, as on a new machine, and go on there
    ``expire(user_id, text, seconds) -> str``
        store a record that ends after so many seconds; its id
    ``correct(user_id, record_id, text)``
        let a record say something else
    ``hold(user_id, record_id)``
        forbid that a record is removed; ``delete`` and ``erase_user`` raise an error from then on
    ``keep_out(user_id, record_id)``
        delete a record, and refuse its text from then on
    ``derive(user_id, record_id, text) -> str``
        store what was made from a record, such as a summary; its id
    ``verify(certificate, public_key) -> bool``
        a static method: whether what ``erase_user`` returned is genuine. It runs where the store is not

    And these say more of the system:

    ``processes = True``
        several processes may have the store open at once
    ``claims = {obligation: (sentence, address)}``
        what the documentation claims. Other obligations are tried where they can be, and never count as failed. Without
        it, all that the adapter has methods for is claimed
    ``version``
        of the system
    ``wait(seconds)``
        let time pass, where the system's clock can be set; otherwise the kit sleeps
    ``settle(verb)``
        do what the documentation says must happen after ``"delete"`` or ``"erase_user"`` before the bytes are gone; its
        docstring is shown. Without it they are looked for at once
    ``spread(user_id, text)``
        put a text of the user wherever else the system keeps something of a user; ``erase_user`` removes it
    ``maintain()``
        do what the system or its database does by itself from time to time, such as statistics and snapshots
    ``embed(text)``
        the vector of a text, whose bytes are looked for, too
    ``other_places()``
        places that the documentation leaves to somebody else; what is left there is shown, and does not count
    ``close()``
        called at the end
    """

    def __init__(self, folder: Path) -> None:
        """Open the store in a folder, which is empty at first. Two adapters of one folder see the same store."""

    def add(self, user_id: str, text: str) -> str:
        """Store a text as a record of a user; its id."""

    def search(self, user_id: str, query: str) -> Iterable[str]:
        """The texts of the user's records that match best, ten or more where there are as many."""

    def get(self, user_id: str, record_id: str) -> str | None:
        """The text of a record, or None."""

    def delete(self, user_id: str, record_id: str) -> None:
        """Delete a record, by the verb that users of the system are told to call."""

    def erase_user(self, user_id: str) -> Proof | None:
        """Remove all that is kept of a user; what proves it, if there is such a thing."""

    def places(self) -> Iterable[Place]:
        """Where the system keeps what it was given: each is searched to the last byte."""


def load(name: str) -> type[Any]:
    """The class of a system's name, or of ``module:Class``; modules of the folder one is in can be named."""
    module, _, attribute = SYSTEMS.get(name, name).partition(":")
    if not attribute:
        known = ", ".join(SYSTEMS)
        raise LookupError(f"{name!r} is no system that is known here ({known}), and not of the form module:Class")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: type[Any] = getattr(import_module(module), attribute)
    except ImportError as problem:
        advice = "Install what it needs beside this Python, or name a system of your own with --adapter module:Class"
        raise LookupError(f"{name} cannot be loaded: {problem}. {advice}") from None
    return found
