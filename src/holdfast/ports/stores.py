"""Every store of an engine: the one list of them."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.ports.conversations import History, ShortTermStore
from holdfast.ports.coordination import ClockStore, IdentityStore, JobStore, KeyStore, LeaseStore, ReplyStore
from holdfast.ports.feed import RecallFeed
from holdfast.ports.objects import PackStore
from holdfast.ports.records import AuditStore, FactStore, ProvenanceStore, RecordStore, SchemaStore
from holdfast.ports.registry import RegistryStore
from holdfast.ports.rules import DueStore, HoldStore, RuleStore
from holdfast.ports.subjects import SubjectReader, SubjectStore


@dataclass(frozen=True)
class Stores:
    """One of each, over one database."""

    records: RecordStore
    provenance: ProvenanceStore
    feed: RecallFeed
    history: History
    short_term: ShortTermStore
    facts: FactStore
    schemas: SchemaStore
    rules: RuleStore
    dues: DueStore
    holds: HoldStore
    packs: PackStore
    audit: AuditStore
    clock_store: ClockStore
    jobs: JobStore
    leases: LeaseStore
    registry: RegistryStore
    subjects: SubjectStore
    reader: SubjectReader
    keys: KeyStore
    replies: ReplyStore
    identity: IdentityStore
