"""The contracts between what Holdfast does and the engines that it runs on.

Each protocol is narrow, speaks the domain and states its contract; engines satisfy it by shape, not by inheritance.
One conformance suite per protocol (``tests/conformance``) runs over every engine. Moments are whole microseconds
since 1970. Each method is one transaction: when it returns, its effect is durable; when it raises, there is none. In a
request that must be done once (``ports/requests.py``) it is a part of one, and durable with the request's reply.
"""

from __future__ import annotations

from holdfast.ports.access import KeyStore, ReplyStore
from holdfast.ports.audit import AuditStore
from holdfast.ports.conversations import (
    Appended,
    BinnedMessage,
    History,
    Session,
    SessionWindow,
    ShortTermStore,
    ShortWindow,
    Summarize,
    Turn,
)
from holdfast.ports.feed import (
    Candidates,
    Changes,
    Cursor,
    IndexRow,
    LargeScopes,
    Neighbours,
    RecallFeed,
    Said,
    Space,
    Wanted,
)
from holdfast.ports.identity import Identity, IdentityStore, Witness
from holdfast.ports.models import Embedder, Summarizer, Vectors
from holdfast.ports.objects import ObjectStore, Pack, PackStore
from holdfast.ports.records import Added, FactStore, ProvenanceStore, RecordStore, SchemaStore, Written
from holdfast.ports.registry import Followed, Outlook, Own, Registered, RegistryStore, removed_agent
from holdfast.ports.requests import Claim, ClaimedError, OnceRequest, StoredReply
from holdfast.ports.rules import Census, DueStore, HoldStore, Named, Page, Profile, RuleStore, Share
from holdfast.ports.subjects import Found, KeptMessage, SetQuota, SubjectReader, SubjectStore
from holdfast.ports.work import ClockStore, JobRow, JobStore, Lease, LeaseStore

__all__ = [
    "Added",
    "Appended",
    "AuditStore",
    "BinnedMessage",
    "Candidates",
    "Census",
    "Changes",
    "Claim",
    "ClaimedError",
    "ClockStore",
    "Cursor",
    "DueStore",
    "Embedder",
    "FactStore",
    "Followed",
    "Found",
    "History",
    "HoldStore",
    "Identity",
    "IdentityStore",
    "IndexRow",
    "JobRow",
    "JobStore",
    "KeptMessage",
    "KeyStore",
    "LargeScopes",
    "Lease",
    "LeaseStore",
    "Named",
    "Neighbours",
    "ObjectStore",
    "OnceRequest",
    "Outlook",
    "Own",
    "Pack",
    "PackStore",
    "Page",
    "Profile",
    "ProvenanceStore",
    "RecallFeed",
    "RecordStore",
    "Registered",
    "RegistryStore",
    "ReplyStore",
    "RuleStore",
    "Said",
    "SchemaStore",
    "Session",
    "SessionWindow",
    "SetQuota",
    "Share",
    "ShortTermStore",
    "ShortWindow",
    "Space",
    "StoredReply",
    "SubjectReader",
    "SubjectStore",
    "Summarize",
    "Summarizer",
    "Turn",
    "Vectors",
    "Wanted",
    "Witness",
    "Written",
    "removed_agent",
]
