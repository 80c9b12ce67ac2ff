"""Every store of the relational engines has the verbs of its port: a type checker compares them here, because they are
found by name where they are made.
"""

from __future__ import annotations

from pathlib import Path

from holdfast.ports.conversations import History, ShortTermStore
from holdfast.ports.coordination import (
    ClockStore,
    ConsoleJobStore,
    IdentityStore,
    JobStore,
    KeyStore,
    LeaseStore,
    ReplyStore,
    SignInStore,
)
from holdfast.ports.feed import RecallFeed
from holdfast.ports.figures import FigureStore
from holdfast.ports.objects import PackStore
from holdfast.ports.records import AuditStore, FactStore, KeptOutStore, ProvenanceStore, RecordStore, SchemaStore
from holdfast.ports.registry import RegistryStore
from holdfast.ports.rules import DueStore, HoldStore, RuleStore, VersionStore
from holdfast.ports.session_parts import PartStore
from holdfast.ports.stores import Stores
from holdfast.ports.subjects import SubjectReader, SubjectStore
from holdfast.storage.relational.access import SqlConsoleJobs, SqlKeys, SqlReplies, SqlSignIns
from holdfast.storage.relational.attachments import (
    SqlFacts,
    SqlKeptOut,
    SqlPacks,
    SqlProvenance,
    SqlSchemas,
    SqlVersions,
)
from holdfast.storage.relational.audit import SqlAudit
from holdfast.storage.relational.coordination import SqlClock, SqlIdentity, SqlJobs, SqlLeases
from holdfast.storage.relational.dues import SqlDues
from holdfast.storage.relational.feed import SqlFeed
from holdfast.storage.relational.figures import SqlFigures
from holdfast.storage.relational.history import SqlHistory
from holdfast.storage.relational.records import SqlRecords
from holdfast.storage.relational.registry import SqlParts, SqlRegistry
from holdfast.storage.relational.rules import SqlHolds, SqlRules
from holdfast.storage.relational.sessions import SqlShortTerm
from holdfast.storage.relational.subjects import SqlSubjectReader, SqlSubjects
from holdfast.storage.sqlite.database import SqliteDatabase
from holdfast.storage.stores import stores_over


def test_each_store_fits_its_port_and_is_found_by_its_name(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "holdfast.db")
    records: RecordStore = SqlRecords(database)
    versions: VersionStore = SqlVersions(database)
    provenance: ProvenanceStore = SqlProvenance(database)
    kept_out: KeptOutStore = SqlKeptOut(database)
    feed: RecallFeed = SqlFeed(database)
    history: History = SqlHistory(database, None)
    short_term: ShortTermStore = SqlShortTerm(database)
    facts: FactStore = SqlFacts(database)
    schemas: SchemaStore = SqlSchemas(database)
    rules: RuleStore = SqlRules(database)
    dues: DueStore = SqlDues(database)
    figures: FigureStore = SqlFigures(database)
    holds: HoldStore = SqlHolds(database)
    packs: PackStore = SqlPacks(database)
    audit: AuditStore = SqlAudit(database)
    clock_store: ClockStore = SqlClock(database)
    jobs: JobStore = SqlJobs(database)
    leases: LeaseStore = SqlLeases(database)
    registry: RegistryStore = SqlRegistry(database, None)
    parts: PartStore = SqlParts(database)
    subjects: SubjectStore = SqlSubjects(database)
    reader: SubjectReader = SqlSubjectReader(database)
    keys: KeyStore = SqlKeys(database)
    sign_ins: SignInStore = SqlSignIns(database)
    console_jobs: ConsoleJobStore = SqlConsoleJobs(database)
    replies: ReplyStore = SqlReplies(database)
    identity: IdentityStore = SqlIdentity(database)
    made = [
        records,
        versions,
        provenance,
        kept_out,
        feed,
        history,
        short_term,
        facts,
        schemas,
        rules,
        dues,
        figures,
        holds,
        packs,
        audit,
        clock_store,
        jobs,
        leases,
        registry,
        parts,
        subjects,
        reader,
        keys,
        sign_ins,
        console_jobs,
        replies,
        identity,
    ]
    stores = stores_over(database)
    names = [name for name in Stores.__annotations__ if name != "make"]
    assert [type(getattr(stores, name)) for name in names] == [type(one) for one in made]
    database.close()
