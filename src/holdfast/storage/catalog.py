"""The catalogue: every table of a store, and every file, object and key beside the tables. It is the one list of them.

Copying, backups, exports, erasure, Citus and ``holdfast doctor`` read it. A test compares it with the schemas of both
engines and with what a full run leaves behind, so nothing can be added that erasure does not reach.

A row has one canonical form, whichever engine it is read from: whole numbers, text, bytes and ``None``, in the order of
``columns``. A flag is 0 or 1. A text that may be compressed is bytes: zlib's, or the text after a zero byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from holdfast.core.records import MemoryType

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


class Owner(Enum):
    """Whom rows, files and objects belong to."""

    USER = "a user"
    TENANT = "a tenant"
    STORE = "the store"


class Backup(Enum):
    """How a backup holds a table."""

    OWN = "with its user, sealed under the user's key"
    NAMED = "rows that name a user with that user, the others with what belongs to everybody"
    COMMON = "with what belongs to everybody"
    GROWING = "from where the backup before stopped, because rows are only added"
    NONE = "not at all"


class Erase(Enum):
    """How erasure reaches a table."""

    NOTHING = "nothing of a user is in it"
    AT_ONCE = "with the user's name, in one transaction"
    BATCHES = "after the name, in batches, by the statement remove_<table> of subjects.sql"
    CASCADE = "with the rows of the table that it refers to"
    OBJECTS = "after the cold objects that it lists"
    LAST = "last"
    KEPT = "kept"


class Spread(Enum):
    """Where Citus keeps a table."""

    SUBJECT = "rows of one user together on one node"
    EVERYWHERE = "whole on every node"
    COORDINATOR = "on the node that everyone connects to"


class Table(NamedTuple):
    """A table, and what becomes of its rows."""

    name: str
    owner: Owner
    columns: Mapping[str, str]
    """Name: ``int``, ``text``, ``bytes``, ``packed`` (text that may be compressed), ``flag``, or ``other`` where the
    table is not copied."""
    key: tuple[str, ...]
    """The columns that PostgreSQL finds its rows in order by."""
    backup: Backup = Backup.NONE
    erase: Erase = Erase.NOTHING
    kept_because: str = ""
    """Why erasure keeps rows of a user."""
    export: str = ""
    """The part of an export that has its rows."""
    left_out_because: str = ""
    """Why an export has no part with its rows, though something of a user is in it."""
    spread: Spread = Spread.EVERYWHERE
    with_kinds: frozenset[MemoryType] = frozenset()
    """A backup holds it if it holds one of these kinds; none: whichever kinds it holds."""
    is_copied: bool = True
    """Whether ``holdfast migrate`` copies it."""
    is_data: bool = True
    """Whether a store with rows here is in use. The others have rows as soon as a store was opened."""
    shows_change: bool = True
    """Whether it is read whole to see whether a store has changed. What changes in the others changes in these."""
    sqlite_key: tuple[str, ...] = ()
    sqlite: Mapping[str, str] = _NONE
    """How SQLite computes the columns that it does not have."""
    sqlite_source: str = ""
    """What SQLite reads instead of a table of this name."""
    is_in_sqlite: bool = True

    def by_name(self, row: Sequence[Any]) -> dict[str, Any]:
        """A canonical row by the names of its columns."""
        return dict(zip(self.columns, row, strict=True))


def _table(
    name: str, owner: Owner, columns: str, key: str, *, sqlite_key: str = "", with_kinds: str = "", **facts: object
) -> Table:
    types = dict(column.split(":") for column in columns.split())
    kinds = frozenset(map(MemoryType, with_kinds.split()))
    by = tuple(key.split())
    at = tuple(sqlite_key.split()) or by
    return Table(name, owner, types, by, with_kinds=kinds, sqlite_key=at, **facts)  # type: ignore[arg-type]


_USER, _TENANT, _STORE = Owner.USER, Owner.TENANT, Owner.STORE
_BY_SUBJECT: Final = Spread.SUBJECT
_PSEUDONYM: Final = "it knows the user by the pseudonym only, and proves that nothing in it was changed"

#: Every table, in an order that foreign keys allow.
TABLES: Final = (
    _table(
        "subjects",
        _USER,
        "no:int subject:text alias:bytes",
        "no",
        backup=Backup.OWN,
        erase=Erase.LAST,
        left_out_because="the user's id, and the pseudonym that the manifest gives",
    ),
    _table(
        "turns",
        _USER,
        "subject:int",
        "subject",
        erase=Erase.KEPT,
        kept_because="a number that is never given again; nothing says whose it was",
        left_out_because="a lock for each user; nothing is in it",
        spread=_BY_SUBJECT,
        shows_change=False,
        sqlite_source="(SELECT no AS subject FROM subjects UNION SELECT subject FROM chains)",
        is_in_sqlite=False,
    ),
    _table(
        "scopes",
        _USER,
        "subject:int scope:int seq:int floor:int next:int memories:int bytes:int",
        "subject scope",
        backup=Backup.OWN,
        erase=Erase.AT_ONCE,
        left_out_because="counts of the memories that are exported",
        spread=_BY_SUBJECT,
        sqlite_key="scope",
        sqlite={"subject": "scope >> 3"},
    ),
    _table(
        "changes",
        _USER,
        "subject:int scope:int seq:int ids:text",
        "subject scope seq",
        erase=Erase.BATCHES,
        left_out_because="ids of memories that changed lately, for search indexes to follow",
        spread=_BY_SUBJECT,
        shows_change=False,
        sqlite_key="scope seq",
        sqlite={"subject": "scope >> 3"},
    ),
    _table("models", _STORE, "code:int id:text current:flag", "code", backup=Backup.COMMON, is_data=False),
    _table("books", _TENANT, "tenant:text version:int defaults:text software:text", "tenant", backup=Backup.COMMON),
    _table(
        "rules",
        _USER,
        "no:int id:text tenant:text kind:text user_id:text agent_id:text session_id:text memory_id:text "
        "selection:text terms:text pending:text version:int updated_at:int",
        "no",
        backup=Backup.NAMED,
        erase=Erase.AT_ONCE,
        export="rules",
    ),
    _table(
        "profiles",
        _USER,
        "no:int tenant:text kind:text rules:text archive_after:int delete_after:int keep_for:int",
        "no",
        backup=Backup.COMMON,
        erase=Erase.LAST,
        left_out_because="what the exported rules come to",
    ),
    _table(
        "records",
        _USER,
        "subject:int key:int kind:int version:int profile:int aged_from:int created_at:int updated_at:int dated_at:int "
        "moved_at:int purge_at:int pack:int size:int model:int id:text state:text previous:text agent_id:text "
        "session_id:text name:text reason:text bundle:text metadata:text terms:bytes vectors:bytes content:packed "
        "body:packed source:text derived_from:text",
        "subject key",
        backup=Backup.OWN,
        erase=Erase.BATCHES,
        export="memories",
        spread=_BY_SUBJECT,
        shows_change=False,
        sqlite_key="key",
    ),
    _table(
        "derivations",
        _USER,
        "subject:int source_id:text key:int",
        "subject source_id key",
        backup=Backup.OWN,
        erase=Erase.CASCADE,
        left_out_because="what exported memories say they were derived from, to be looked up the other way round",
        spread=_BY_SUBJECT,
        shows_change=False,
    ),
    _table(
        "quotas",
        _USER,
        "tenant:text user_id:text kind:int max_memories:int max_bytes:int",
        "tenant user_id kind",
        backup=Backup.NAMED,
        erase=Erase.AT_ONCE,
        export="quotas",
    ),
    _table(
        "sessions",
        _USER,
        "subject:int no:int version:int profile:int created_at:int updated_at:int aged_from:int moved_at:int "
        "purge_at:int messages:int size:int summarized:int aside:int id:text agent_id:text session_id:text state:text "
        "reason:text bundle:text summary:text",
        "subject no",
        backup=Backup.OWN,
        with_kinds="long_term",
        erase=Erase.BATCHES,
        export="conversations",
        spread=_BY_SUBJECT,
        sqlite_key="no",
    ),
    _table(
        "history",
        _USER,
        "subject:int key:int created_at:int purge_at:int id:text role:text metadata:text content:packed",
        "subject key",
        backup=Backup.OWN,
        with_kinds="long_term",
        erase=Erase.BATCHES,
        export="conversations",
        spread=_BY_SUBJECT,
        shows_change=False,
        sqlite_key="key",
        sqlite={"subject": "(SELECT subject FROM sessions WHERE no = history.key >> 24)"},
    ),
    _table(
        "short_windows",
        _USER,
        "subject:int no:int expires_at:int agent_id:text session_id:text session:text",
        "subject no",
        erase=Erase.BATCHES,
        export="short_term",
        spread=_BY_SUBJECT,
        sqlite_key="no",
    ),
    _table(
        "short_messages",
        _USER,
        "subject:int window:int place:int created_at:int id:text role:text metadata:text content:packed",
        "subject window place",
        erase=Erase.CASCADE,
        export="short_term",
        spread=_BY_SUBJECT,
        shows_change=False,
        sqlite_key="place",
        sqlite={
            "subject": "(SELECT subject FROM short_windows WHERE no = short_messages.window)",
            "place": "short_messages.rowid",
        },
    ),
    _table(
        "facts",
        _USER,
        "subject:int id:text source:text name:text target:text value:text since:int until:int recorded_at:int",
        "subject id",
        backup=Backup.OWN,
        with_kinds="entity",
        erase=Erase.BATCHES,
        export="facts",
        spread=_BY_SUBJECT,
    ),
    _table(
        "schemas",
        _TENANT,
        "tenant:text collection:text schema:text",
        "tenant collection",
        backup=Backup.COMMON,
        export="collections",
    ),
    _table(
        "registry",
        _TENANT,
        "tenant:text sort:text id:text state:text version:int description:text metadata:text created_at:int "
        "updated_at:int moved_at:int reason:text purge_at:int bundle:text unfinished:text",
        "tenant sort id",
        backup=Backup.COMMON,
        with_kinds="long_term",
    ),
    _table(
        "holds",
        _USER,
        "id:text tenant:text user_id:text agent_id:text session_id:text memory_id:text tag:text reason:text "
        "author:text created_at:int released_at:int released_by:text",
        "id",
        backup=Backup.NAMED,
        erase=Erase.AT_ONCE,
        export="holds",
    ),
    _table(
        "packs",
        _USER,
        "subject:int no:int name:text state:text records:int bytes:int digest:bytes made_at:int",
        "subject no",
        backup=Backup.OWN,
        with_kinds="long_term structured",
        erase=Erase.OBJECTS,
        export="memories",
        spread=_BY_SUBJECT,
        sqlite_key="no",
    ),
    _table(
        "chains",
        _USER,
        "subject:int seq:int hash:bytes floor:int floor_hash:bytes",
        "subject",
        backup=Backup.COMMON,
        with_kinds="long_term",
        erase=Erase.KEPT,
        kept_because=_PSEUDONYM,
        left_out_because="the length and the last hash of the exported audit chain",
        spread=_BY_SUBJECT,
    ),
    _table(
        "audit",
        _USER,
        "subject:int seq:int no:int at:int item:text last_item:text entry:text hash:bytes",
        "subject seq",
        backup=Backup.GROWING,
        with_kinds="long_term",
        erase=Erase.KEPT,
        kept_because=_PSEUDONYM,
        export="audit",
        spread=_BY_SUBJECT,
        shows_change=False,
    ),
    _table(
        "sealed",
        _USER,
        "subject:int alias:bytes seq:int hash:bytes",
        "subject",
        backup=Backup.COMMON,
        with_kinds="long_term",
        erase=Erase.KEPT,
        kept_because=_PSEUDONYM,
        left_out_because="the length and the hash of the audit chain, as of the last checkpoint",
        spread=_BY_SUBJECT,
    ),
    _table(
        "audit_checkpoints",
        _STORE,
        "no:int at:int chains:int entries:int root:bytes hash:bytes",
        "no",
        backup=Backup.COMMON,
        with_kinds="long_term",
    ),
    _table("leases", _STORE, "name:text holder:text epoch:int expires_at:int", "name", is_copied=False),
    _table(
        "jobs",
        _USER,
        "name:text cron:text timezone:text enabled:int since:int slot:int started_at:int finished_at:int result:text "
        "error:text",
        "name",
        backup=Backup.COMMON,
        erase=Erase.AT_ONCE,
        left_out_because="how the last run of each job went; one that waits for confirmation names its users",
        is_data=False,
    ),
    _table(
        "totals",
        _USER,
        "subject:int kind:text state:text cause:text count:int",
        "subject kind state cause",
        backup=Backup.OWN,
        with_kinds="long_term",
        erase=Erase.AT_ONCE,
        left_out_because="counts of how often memories moved",
        spread=_BY_SUBJECT,
    ),
    _table("seen", _STORE, "one:int at:int sighted:int", "one", backup=Backup.COMMON, is_data=False),
    _table("ledger_seen", _STORE, "one:int no:int hash:text", "one", is_data=False),
    _table("identity", _STORE, "one:int store:text keyring:text", "one", is_data=False),
    _table(
        "api_keys",
        _USER,
        "id:text tenant:text name:text rights:text users:text agents:text hashed:bytes created_at:int expires_at:int "
        "revoked_at:int last_used_at:int",
        "id",
        backup=Backup.COMMON,
        erase=Erase.AT_ONCE,
        left_out_because="which callers may reach which users; nothing is in it that was said by or about the user",
    ),
    _table(
        "replies",
        _USER,
        "id:bytes fingerprint:bytes claim:bytes claimed_at:int leased_until:int reply:bytes",
        "id",
        erase=Erase.KEPT,
        kept_because="sealed under keys that are not in the store, and gone in a day",
        left_out_because="sealed under keys that are not in the store, so that nobody can tell whose they are; gone in "
        "a day",
        spread=Spread.COORDINATOR,
        is_copied=False,
    ),
    _table(
        "recent_erasures",
        _USER,
        "salt:bytes digest:bytes erased_at:int",
        "salt",
        erase=Erase.KEPT,
        kept_because="a salted digest of the name, for processes that have the store open; gone in days",
        left_out_because="that someone was erased in the last days, as a salted digest of the name",
        spread=Spread.COORDINATOR,
        is_copied=False,
    ),
    _table(
        "witness",
        _STORE,
        "one:int started_at:other xid:int",
        "one",
        spread=Spread.COORDINATOR,
        is_copied=False,
        is_in_sqlite=False,
    ),
    _table(
        "schema_version",
        _STORE,
        "one:int version:int",
        "one",
        spread=Spread.COORDINATOR,
        is_copied=False,
        is_in_sqlite=False,
    ),
)

#: The table that says how far ``holdfast migrate`` has come. While it is there, nobody opens the store.
COPYING: Final = "copying"
COPIED: Final = tuple(table for table in TABLES if table.is_copied)
_BY_NAME: Final = {table.name: table for table in TABLES}


def table_of(name: str) -> Table:
    """The table of a name; ``KeyError`` if a store has none."""
    return _BY_NAME[name]


def tables_in(*backups: Backup, kinds: frozenset[MemoryType] = frozenset(MemoryType)) -> list[Table]:
    """The tables that a backup of some kinds holds in one of these ways, in an order that foreign keys allow."""
    held = (table for table in TABLES if table.backup in backups)
    return [table for table in held if not table.with_kinds or table.with_kinds & kinds]


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


# --- beside the tables ------------------------------------------------------------------------------------------------


class Where(Enum):
    """Where files, objects and keys lie, by the setting that names it."""

    HOME = "HOLDFAST_HOME"
    STATE = "HOLDFAST_STATE_URL"
    COLD = "HOLDFAST_ARCHIVE_URL"
    BACKUPS = "HOLDFAST_BACKUP_URL"
    SHORT_TERM = "HOLDFAST_SHORT_TERM_URL"


class Location(NamedTuple):
    """Something that lies in no table."""

    where: Where
    names: str
    """A pattern of names; ``*`` is any text."""
    owner: Owner
    what: str
    erased: str = "nothing of a user is in it"
    """How erasure reaches it."""
    left_out_because: str = ""
    """Why an export does not have it, where it is a user's."""

    def holds(self, where: Where, name: str) -> bool:
        """Whether something of this name is meant."""
        return self.where is where and fnmatchcase(name, self.names)


_SECRET: Final = "a secret; what is sealed under it is exported as it was before"  # noqa: S105 - a sentence
_COPIES: Final = "copies of what is exported"
_DESTROYED: Final = "the user's key is destroyed at once; the next rotation removes the bytes"
_KNOWN_BY_PSEUDONYM: Final = "kept: it names the pseudonym only, and says that the erasure was carried out"

LOCATIONS: Final = (
    Location(Where.HOME, "holdfast.db", _USER, "the store", "rows are removed and overwritten"),
    Location(Where.HOME, "holdfast.db-wal", _USER, "its write-ahead log", "truncated"),
    Location(Where.HOME, "holdfast.db-shm", _STORE, "the index of that log"),
    Location(Where.HOME, "holdfast.toml", _STORE, "settings"),
    Location(Where.HOME, "keys/master.key*", _STORE, "the master key, and the one before while it is changed"),
    Location(Where.HOME, "keys/.master.key*", _STORE, "a master key that is being written"),
    Location(Where.HOME, "state/*audit-checkpoint.json", _STORE, "the last checkpoint of the audit chains"),
    Location(Where.HOME, "*.lock", _STORE, "locks; empty"),
    Location(Where.STATE, ".incoming/*", _USER, "objects that are being written", "removed with the next deletion"),
    Location(Where.STATE, "keys/??/*.json", _USER, "data keys", "destroyed", _SECRET),
    Location(Where.STATE, "keys/abandoned/*", _USER, "keys whose master key was lost", "destroyed", _SECRET),
    Location(Where.STATE, "keys/signing/*", _STORE, "the keys that certificates and backups are signed with"),
    Location(Where.STATE, "keys/keyring/id", _STORE, "the id of the keyring"),
    Location(Where.STATE, "ledger/*.json", _USER, "the ledger of erasures", _KNOWN_BY_PSEUDONYM),
    Location(Where.STATE, "erased/*", _USER, "marks of the erased", _KNOWN_BY_PSEUDONYM),
    Location(
        Where.STATE,
        "deferred/*",
        _USER,
        "erasures that a hold keeps",
        "removed with the hold; it names the pseudonym only",
    ),
    Location(Where.STATE, "certificates/*.json", _USER, "certificates", _KNOWN_BY_PSEUDONYM),
    Location(Where.STATE, "revoked/*", _STORE, "the ids of API keys that were revoked"),
    Location(Where.STATE, "state/stores/*.json", _STORE, "which stores were opened"),
    Location(Where.STATE, "state/*retention-policies.json", _TENANT, "policies of retention domains"),
    Location(Where.COLD, ".incoming/*", _USER, "objects that are being written", "removed with the next deletion"),
    Location(Where.COLD, "archive/*.pack", _USER, "archived memories", "deleted; their key is destroyed"),
    Location(Where.COLD, "archive/*/domains/*", _TENANT, "archives of retention domains"),
    Location(Where.BACKUPS, ".incoming/*", _USER, "objects that are being written", "removed with the next deletion"),
    Location(Where.BACKUPS, "backups/*", _USER, "manifests and indexes of backups", _DESTROYED, _COPIES),
    Location(Where.BACKUPS, "segments/*", _USER, "sealed documents of backups", _DESTROYED, _COPIES),
    Location(Where.BACKUPS, "packs/archive/*", _USER, "archived memories, in backups", _DESTROYED, _COPIES),
    Location(Where.SHORT_TERM, "holdfast:{*}:session:*", _USER, "short-term messages", "deleted"),
    Location(Where.SHORT_TERM, "holdfast:{*}:user:*", _USER, "the sessions of a user", "deleted"),
    Location(Where.SHORT_TERM, "holdfast:{*}:agent:*", _USER, "the sessions of an agent", "cleared of the user's"),
    Location(Where.SHORT_TERM, "holdfast:{*}:due", _USER, "when sessions expire", "cleared of the user's"),
)
