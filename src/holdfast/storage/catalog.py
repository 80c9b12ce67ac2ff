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

from holdfast.core.records import KIND_BITS, MemoryType


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
    sqlite: Mapping[str, str] = MappingProxyType({})
    """How SQLite computes the columns that it does not have."""
    sqlite_source: str = ""
    """What SQLite reads instead of a table of this name."""
    is_in_sqlite: bool = True

    def by_name(self, row: Sequence[Any]) -> dict[str, Any]:
        """A canonical row by the names of its columns."""
        return dict(zip(self.columns, row, strict=True))


#: The columns of each table; those with a star are its key.
_COLUMNS: Final = """
subjects = *no:int subject:text alias:bytes
turns = *subject:int
scopes = *subject:int *scope:int seq:int floor:int next:int memories:int bytes:int
changes = *subject:int *scope:int *seq:int ids:text
models = *code:int id:text current:flag
books = *tenant:text version:int defaults:text software:text
rules = *no:int id:text tenant:text kind:text user_id:text agent_id:text session_id:text memory_id:text selection:text
  terms:text pending:text version:int updated_at:int
profiles = *no:int tenant:text kind:text rules:text archive_after:int delete_after:int keep_for:int
records = *subject:int *key:int kind:int version:int profile:int aged_from:int created_at:int updated_at:int
  dated_at:int moved_at:int purge_at:int pack:int size:int model:int id:text state:text previous:text agent_id:text
  session_id:text name:text reason:text bundle:text metadata:text terms:bytes vectors:bytes content:packed body:packed
  source:text derived_from:text
derivations = *subject:int *source_id:text *key:int
quotas = *tenant:text *user_id:text *kind:int max_memories:int max_bytes:int
sessions = *subject:int *no:int version:int profile:int created_at:int updated_at:int aged_from:int moved_at:int
  purge_at:int messages:int size:int summarized:int aside:int id:text agent_id:text session_id:text state:text
  reason:text bundle:text summary:text
history = *subject:int *key:int created_at:int purge_at:int id:text role:text metadata:text content:packed
short_windows = *subject:int *no:int expires_at:int agent_id:text session_id:text session:text
short_messages = *subject:int *window:int *place:int created_at:int id:text role:text metadata:text content:packed
facts = *subject:int *id:text source:text name:text target:text value:text since:int until:int recorded_at:int
schemas = *tenant:text *collection:text schema:text
registry = *tenant:text *sort:text *id:text state:text version:int description:text metadata:text created_at:int
  updated_at:int moved_at:int reason:text purge_at:int bundle:text unfinished:text
holds = *id:text tenant:text user_id:text agent_id:text session_id:text memory_id:text tag:text reason:text
  author:text created_at:int released_at:int released_by:text
packs = *subject:int *no:int name:text state:text records:int bytes:int digest:bytes made_at:int
chains = *subject:int seq:int hash:bytes floor:int floor_hash:bytes
audit = *subject:int *seq:int no:int at:int item:text last_item:text entry:text hash:bytes
sealed = *subject:int alias:bytes seq:int hash:bytes
audit_checkpoints = *no:int at:int chains:int entries:int root:bytes hash:bytes
leases = *name:text holder:text epoch:int expires_at:int
jobs = *name:text cron:text timezone:text enabled:int since:int slot:int started_at:int finished_at:int result:text
  error:text
totals = *subject:int *kind:text *state:text *cause:text count:int
seen = *one:int at:int sighted:int
ledger_seen = *one:int no:int hash:text
identity = *one:int store:text keyring:text
api_keys = *id:text tenant:text name:text rights:text users:text agents:text hashed:bytes created_at:int
  expires_at:int revoked_at:int last_used_at:int
replies = *id:bytes fingerprint:bytes claim:bytes claimed_at:int leased_until:int reply:bytes
recent_erasures = *salt:bytes digest:bytes erased_at:int
witness = *one:int started_at:other xid:int
schema_version = *one:int version:int
"""
#: The columns by which SQLite has its rows in order, where they are others than the key.
_SQLITE_KEYS: Final = {
    "scopes": "scope",
    "changes": "scope seq",
    "records": "key",
    "sessions": "no",
    "history": "key",
    "short_windows": "no",
    "short_messages": "place",
    "packs": "no",
}
#: How SQLite computes columns that it does not have.
_SQLITE_COLUMNS: Final = {
    "scopes": {"subject": f"scope >> {KIND_BITS}"},
    "changes": {"subject": f"scope >> {KIND_BITS}"},
    "history": {"subject": "(SELECT subject FROM sessions WHERE no = history.key >> 24)"},
    "short_messages": {
        "subject": "(SELECT subject FROM short_windows WHERE no = short_messages.window)",
        "place": "short_messages.rowid",
    },
}
_SQLITE_SOURCES: Final = {"turns": "(SELECT no AS subject FROM subjects UNION SELECT subject FROM chains)"}


#: Tables that PostgreSQL alone has.
_POSTGRES_ONLY: Final = {"turns", "witness", "schema_version"}
#: Tables that are not read to see whether a store has changed: what changes in them changes in others, too.
_FOLLOW_OTHERS: Final = {"turns", "changes", "records", "derivations", "history", "short_messages", "audit"}
_ON_COORDINATOR: Final = {"replies", "recent_erasures", "witness", "schema_version"}
#: Why an export does not have tables with something of a user in them.
_LEFT_OUT: Final = {
    "subjects": "the user's id, and the pseudonym that the manifest gives",
    "turns": "a lock for each user; nothing is in it",
    "scopes": "counts of the memories that are exported",
    "changes": "ids of memories that changed lately, for search indexes to follow",
    "profiles": "what the exported rules come to",
    "derivations": "what exported memories say they were derived from, to be looked up the other way round",
    "chains": "the length and the last hash of the exported audit chain",
    "sealed": "the length and the hash of the audit chain, as of the last checkpoint",
    "jobs": "how the last run of each job went; one that waits for confirmation names its users",
    "totals": "counts of how often memories moved",
    "api_keys": "which callers may reach which users; nothing is in it that was said by or about the user",
    "replies": "sealed under keys that are not in the store: nobody can tell whose they are; gone in a day",
    "recent_erasures": "that someone was erased in the last days, as a salted digest of the name",
}
_PSEUDONYM: Final = "it knows the user by the pseudonym only, and proves that nothing in it was changed"
#: Why erasure keeps rows of a user.
_KEPT: Final = {
    "turns": "a number that is never given again; nothing says whose it was",
    "chains": _PSEUDONYM,
    "audit": _PSEUDONYM,
    "sealed": _PSEUDONYM,
    "replies": "sealed under keys that are not in the store, and gone in a day",
    "recent_erasures": "a salted digest of the name, for processes that have the store open; gone in days",
}
_BY_TABLE: Final = dict(line.split(" = ") for line in _COLUMNS.strip().replace("\n  ", " ").split("\n"))


def _table(name: str, owner: Owner, backup: Backup, erase: Erase, *, kinds: str = "", **facts: Any) -> Table:
    described = _BY_TABLE[name].split()
    columns = dict(column.lstrip("*").split(":") for column in described)
    key = tuple(column[1:].split(":")[0] for column in described if column.startswith("*"))
    by_subject = Spread.SUBJECT if columns.get("subject") == "int" else Spread.EVERYWHERE
    return Table(
        name,
        owner,
        columns,
        key,
        backup,
        erase,
        kept_because=_KEPT.get(name, ""),
        left_out_because=_LEFT_OUT.get(name, ""),
        spread=Spread.COORDINATOR if name in _ON_COORDINATOR else by_subject,
        with_kinds=frozenset(map(MemoryType, kinds.split())),
        shows_change=name not in _FOLLOW_OTHERS,
        sqlite_key=tuple(_SQLITE_KEYS[name].split()) if name in _SQLITE_KEYS else key,
        sqlite=_SQLITE_COLUMNS.get(name, {}),
        sqlite_source=_SQLITE_SOURCES.get(name, ""),
        is_in_sqlite=name not in _POSTGRES_ONLY,
        **facts,
    )


#: Every table, in an order that foreign keys allow.
TABLES: Final = (
    _table("subjects", Owner.USER, Backup.OWN, Erase.LAST),
    _table("turns", Owner.USER, Backup.NONE, Erase.KEPT),
    _table("scopes", Owner.USER, Backup.OWN, Erase.AT_ONCE),
    _table("changes", Owner.USER, Backup.NONE, Erase.BATCHES),
    _table("models", Owner.STORE, Backup.COMMON, Erase.NOTHING, is_data=False),
    _table("books", Owner.TENANT, Backup.COMMON, Erase.NOTHING),
    _table("rules", Owner.USER, Backup.NAMED, Erase.AT_ONCE, export="rules"),
    _table("profiles", Owner.USER, Backup.COMMON, Erase.LAST),
    _table("records", Owner.USER, Backup.OWN, Erase.BATCHES, export="memories"),
    _table("derivations", Owner.USER, Backup.OWN, Erase.CASCADE),
    _table("quotas", Owner.USER, Backup.NAMED, Erase.AT_ONCE, export="quotas"),
    _table("sessions", Owner.USER, Backup.OWN, Erase.BATCHES, export="conversations", kinds="long_term"),
    _table("history", Owner.USER, Backup.OWN, Erase.BATCHES, export="conversations", kinds="long_term"),
    _table("short_windows", Owner.USER, Backup.NONE, Erase.BATCHES, export="short_term"),
    _table("short_messages", Owner.USER, Backup.NONE, Erase.CASCADE, export="short_term"),
    _table("facts", Owner.USER, Backup.OWN, Erase.BATCHES, export="facts", kinds="entity"),
    _table("schemas", Owner.TENANT, Backup.COMMON, Erase.NOTHING, export="collections"),
    _table("registry", Owner.TENANT, Backup.COMMON, Erase.NOTHING, kinds="long_term"),
    _table("holds", Owner.USER, Backup.NAMED, Erase.AT_ONCE, export="holds"),
    _table("packs", Owner.USER, Backup.OWN, Erase.OBJECTS, export="memories", kinds="long_term structured"),
    _table("chains", Owner.USER, Backup.COMMON, Erase.KEPT, kinds="long_term"),
    _table("audit", Owner.USER, Backup.GROWING, Erase.KEPT, export="audit", kinds="long_term"),
    _table("sealed", Owner.USER, Backup.COMMON, Erase.KEPT, kinds="long_term"),
    _table("audit_checkpoints", Owner.STORE, Backup.COMMON, Erase.NOTHING, kinds="long_term"),
    _table("leases", Owner.STORE, Backup.NONE, Erase.NOTHING, is_copied=False),
    _table("jobs", Owner.USER, Backup.COMMON, Erase.AT_ONCE, is_data=False),
    _table("totals", Owner.USER, Backup.OWN, Erase.AT_ONCE, kinds="long_term"),
    _table("seen", Owner.STORE, Backup.COMMON, Erase.NOTHING, is_data=False),
    _table("ledger_seen", Owner.STORE, Backup.NONE, Erase.NOTHING, is_data=False),
    _table("identity", Owner.STORE, Backup.NONE, Erase.NOTHING, is_data=False),
    _table("api_keys", Owner.USER, Backup.COMMON, Erase.AT_ONCE),
    _table("replies", Owner.USER, Backup.NONE, Erase.KEPT, is_copied=False),
    _table("recent_erasures", Owner.USER, Backup.NONE, Erase.KEPT, is_copied=False),
    _table("witness", Owner.STORE, Backup.NONE, Erase.NOTHING, is_copied=False),
    _table("schema_version", Owner.STORE, Backup.NONE, Erase.NOTHING, is_copied=False),
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
    Location(Where.HOME, "holdfast.db", Owner.USER, "the store", "rows are removed and overwritten"),
    Location(Where.HOME, "holdfast.db-wal", Owner.USER, "its write-ahead log", "truncated"),
    Location(Where.HOME, "holdfast.db-shm", Owner.STORE, "the index of that log"),
    Location(Where.HOME, "holdfast.toml", Owner.STORE, "settings"),
    Location(Where.HOME, "keys/master.key*", Owner.STORE, "the master key, and the one before while it is changed"),
    Location(Where.HOME, "keys/.master.key*", Owner.STORE, "a master key that is being written"),
    Location(Where.HOME, "state/*audit-checkpoint.json", Owner.STORE, "the last checkpoint of the audit chains"),
    Location(Where.HOME, "*.lock", Owner.STORE, "locks; empty"),
    Location(
        Where.STATE, ".incoming/*", Owner.USER, "objects that are being written", "removed with the next deletion"
    ),
    Location(Where.STATE, "keys/??/*.json", Owner.USER, "data keys", "destroyed", _SECRET),
    Location(Where.STATE, "keys/abandoned/*", Owner.USER, "keys whose master key was lost", "destroyed", _SECRET),
    Location(Where.STATE, "keys/signing/*", Owner.STORE, "the keys that certificates and backups are signed with"),
    Location(Where.STATE, "keys/keyring/id", Owner.STORE, "the id of the keyring"),
    Location(Where.STATE, "ledger/*.json", Owner.USER, "the ledger of erasures", _KNOWN_BY_PSEUDONYM),
    Location(Where.STATE, "erased/*", Owner.USER, "marks of the erased", _KNOWN_BY_PSEUDONYM),
    Location(
        Where.STATE,
        "deferred/*",
        Owner.USER,
        "erasures that a hold keeps",
        "removed with the hold; it names the pseudonym only",
    ),
    Location(Where.STATE, "certificates/*.json", Owner.USER, "certificates", _KNOWN_BY_PSEUDONYM),
    Location(Where.STATE, "revoked/*", Owner.STORE, "the ids of API keys that were revoked"),
    Location(Where.STATE, "state/stores/*.json", Owner.STORE, "which stores were opened"),
    Location(Where.STATE, "state/*retention-policies.json", Owner.TENANT, "policies of retention domains"),
    Location(Where.COLD, ".incoming/*", Owner.USER, "objects that are being written", "removed with the next deletion"),
    Location(Where.COLD, "archive/*.pack", Owner.USER, "archived memories", "deleted; their key is destroyed"),
    Location(Where.COLD, "archive/*/domains/*", Owner.TENANT, "archives of retention domains"),
    Location(
        Where.BACKUPS, ".incoming/*", Owner.USER, "objects that are being written", "removed with the next deletion"
    ),
    Location(Where.BACKUPS, "backups/*", Owner.USER, "manifests and indexes of backups", _DESTROYED, _COPIES),
    Location(Where.BACKUPS, "segments/*", Owner.USER, "sealed documents of backups", _DESTROYED, _COPIES),
    Location(Where.BACKUPS, "packs/archive/*", Owner.USER, "archived memories, in backups", _DESTROYED, _COPIES),
    Location(Where.SHORT_TERM, "holdfast:{*}:session:*", Owner.USER, "short-term messages", "deleted"),
    Location(Where.SHORT_TERM, "holdfast:{*}:user:*", Owner.USER, "the sessions of a user", "deleted"),
    Location(Where.SHORT_TERM, "holdfast:{*}:agent:*", Owner.USER, "the sessions of an agent", "cleared of the user's"),
    Location(Where.SHORT_TERM, "holdfast:{*}:due", Owner.USER, "when sessions expire", "cleared of the user's"),
)
