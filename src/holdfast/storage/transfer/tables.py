"""What a store consists of, table by table, and where its engines differ in that. Nothing else knows.

A row has one canonical form, whichever engine it was read from: whole numbers, text, bytes and ``None``, in the order
of ``columns``. A flag is 0 or 1. A text that may be compressed is bytes: zlib's, or the text after a zero byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Table(NamedTuple):
    """A table as both engines have it."""

    name: str
    columns: Mapping[str, str]
    """Name: ``int``, ``text``, ``bytes``, ``packed`` (text that may be compressed) or ``flag``."""
    order: tuple[str, ...]
    """The columns that PostgreSQL finds its rows in order by."""
    sqlite_order: tuple[str, ...]
    sqlite: Mapping[str, str] = _NONE
    """How SQLite comes by columns that it does not have."""
    sqlite_source: str = ""
    """What SQLite reads instead of a table of this name."""
    tells: bool = True
    """Whether it is read whole to tell whether a store has changed. Whatever changes in the others changes in these."""
    is_data: bool = True
    """Whether a store that has rows here is in use. The others have some as soon as a store was opened."""


def _table(
    name: str,
    columns: str,
    order: str,
    sqlite_order: str = "",
    *,
    sqlite: Mapping[str, str] = _NONE,
    sqlite_source: str = "",
    tells: bool = True,
    is_data: bool = True,
) -> Table:
    kinds = dict(column.split(":") for column in columns.split())
    by = tuple(order.split())
    return Table(name, kinds, by, tuple(sqlite_order.split()) or by, sqlite, sqlite_source, tells, is_data)


#: Every table that is copied, in an order that foreign keys allow.
TABLES: Final = (
    _table("subjects", "no:int subject:text alias:bytes", "no"),
    _table(
        "turns",
        "subject:int",
        "subject",
        sqlite_source="(SELECT no AS subject FROM subjects UNION SELECT subject FROM chains)",
        tells=False,
    ),
    _table(
        "scopes",
        "subject:int scope:int seq:int floor:int next:int memories:int bytes:int",
        "subject scope",
        "scope",
        sqlite={"subject": "scope >> 3"},
    ),
    _table(
        "changes",
        "subject:int scope:int seq:int ids:text",
        "subject scope seq",
        "scope seq",
        sqlite={"subject": "scope >> 3"},
        tells=False,
    ),
    _table("models", "code:int id:text current:flag", "code", is_data=False),
    _table("books", "tenant:text version:int defaults:text software:text", "tenant"),
    _table(
        "rules",
        "no:int id:text tenant:text kind:text user_id:text agent_id:text session_id:text memory_id:text "
        "selection:text terms:text pending:text version:int updated_at:int",
        "no",
    ),
    _table("profiles", "no:int tenant:text kind:text rules:text archive_after:int delete_after:int keep_for:int", "no"),
    _table(
        "records",
        "subject:int key:int kind:int version:int profile:int aged_from:int created_at:int updated_at:int dated_at:int "
        "moved_at:int purge_at:int pack:int size:int model:int id:text state:text previous:text agent_id:text "
        "session_id:text name:text reason:text bundle:text metadata:text terms:bytes vectors:bytes content:packed "
        "body:packed source:text derived_from:text",
        "subject key",
        "key",
        tells=False,
    ),
    _table("derivations", "subject:int source_id:text key:int", "subject source_id key", tells=False),
    _table("quotas", "tenant:text user_id:text kind:int max_memories:int max_bytes:int", "tenant user_id kind"),
    _table(
        "sessions",
        "subject:int no:int version:int profile:int created_at:int updated_at:int aged_from:int moved_at:int "
        "purge_at:int messages:int size:int summarized:int aside:int id:text agent_id:text session_id:text state:text "
        "reason:text bundle:text summary:text",
        "subject no",
        "no",
    ),
    _table(
        "history",
        "subject:int key:int created_at:int purge_at:int id:text role:text metadata:text content:packed",
        "subject key",
        "key",
        sqlite={"subject": "(SELECT subject FROM sessions WHERE no = history.key >> 24)"},
        tells=False,
    ),
    _table(
        "short_windows",
        "subject:int no:int expires_at:int agent_id:text session_id:text session:text",
        "subject no",
        "no",
    ),
    _table(
        "short_messages",
        "subject:int window:int place:int created_at:int id:text role:text metadata:text content:packed",
        "subject window place",
        "place",
        sqlite={
            "subject": "(SELECT subject FROM short_windows WHERE no = short_messages.window)",
            "place": "short_messages.rowid",
        },
        tells=False,
    ),
    _table(
        "facts",
        "subject:int id:text source:text name:text target:text value:text since:int until:int recorded_at:int",
        "subject id",
    ),
    _table("schemas", "tenant:text collection:text schema:text", "tenant collection"),
    _table(
        "registry",
        "tenant:text sort:text id:text state:text version:int description:text metadata:text created_at:int "
        "updated_at:int moved_at:int reason:text purge_at:int bundle:text unfinished:text",
        "tenant sort id",
    ),
    _table(
        "holds",
        "id:text tenant:text user_id:text agent_id:text session_id:text memory_id:text tag:text reason:text "
        "author:text created_at:int released_at:int released_by:text",
        "id",
    ),
    _table(
        "packs",
        "subject:int no:int name:text state:text records:int bytes:int digest:bytes made_at:int",
        "subject no",
        "no",
    ),
    _table("chains", "subject:int seq:int hash:bytes floor:int floor_hash:bytes", "subject"),
    _table(
        "audit",
        "subject:int seq:int no:int at:int item:text last_item:text entry:text hash:bytes",
        "subject seq",
        tells=False,
    ),
    _table("sealed", "subject:int alias:bytes seq:int hash:bytes", "subject"),
    _table("audit_checkpoints", "no:int at:int chains:int entries:int root:bytes hash:bytes", "no"),
    _table(
        "jobs",
        "name:text cron:text timezone:text enabled:int since:int slot:int started_at:int finished_at:int result:text "
        "error:text",
        "name",
        is_data=False,
    ),
    _table("totals", "subject:int kind:text state:text cause:text count:int", "subject kind state cause"),
    _table("seen", "one:int at:int sighted:int", "one", is_data=False),
    _table("ledger_seen", "one:int no:int hash:text", "one", is_data=False),
    _table("identity", "one:int store:text keyring:text", "one", is_data=False),
    _table(
        "api_keys",
        "id:text tenant:text name:text rights:text users:text agents:text hashed:bytes created_at:int expires_at:int "
        "revoked_at:int last_used_at:int",
        "id",
    ),
)

#: Not copied: a lease is its holder's; a reply is for whoever asks again within the day, where they asked; a witness
#: speaks for its own database; the others PostgreSQL makes from records, where and when they are needed. A mark of an
#: erasure is for processes that have this very store open.
LEFT_OUT: Final = ("leases", "replies", "witness", "passages", "fillings", "recent_erasures")


class Counter(NamedTuple):
    """A column whose numbers are never given twice, not even those of rows that are gone."""

    table: str
    column: str
    sequence: str = ""
    """What numbers it in PostgreSQL, where that is not the column itself."""


COUNTERS: Final = (
    Counter("subjects", "no"),
    Counter("models", "code"),
    Counter("rules", "no"),
    Counter("profiles", "no"),
    Counter("sessions", "no"),
    Counter("short_windows", "no"),
    Counter("short_messages", "place"),
    Counter("packs", "no"),
    Counter("audit", "no", sequence="audit_no"),
)
