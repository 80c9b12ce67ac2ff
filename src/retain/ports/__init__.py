"""The contracts between what Retain does and the engines that it runs on.

Each protocol is narrow, speaks the domain and states its contract; engines satisfy it by shape, not by inheritance.
One conformance suite per protocol (``tests/conformance``) runs over every engine. Moments are whole microseconds
since 1970. Each method is one transaction: when it returns, its effect is durable; when it raises, there is none. In a
request that must be done once (``ports/requests.py``) it is a part of one, and durable with the request's reply.
"""

from __future__ import annotations

from retain.ports.access import KeyStore, ReplyStore
from retain.ports.audit import AuditStore
from retain.ports.conversations import (
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
from retain.ports.feed import (
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
from retain.ports.identity import Identity, IdentityStore, Witness
from retain.ports.models import Embedder, Summarizer, Vectors
from retain.ports.objects import ObjectStore, Pack, PackStore
from retain.ports.records import Added, FactStore, ProvenanceStore, RecordStore, SchemaStore, Written
from retain.ports.registry import Followed, Outlook, Own, Registered, RegistryStore, removed_agent
from retain.ports.requests import Claim, ClaimedError, OnceRequest, StoredReply
from retain.ports.rules import Census, DueStore, HoldStore, Named, Page, Profile, RuleStore, Share
from retain.ports.subjects import Found, KeptMessage, SetQuota, SubjectReader, SubjectStore
from retain.ports.work import ClockStore, JobRow, JobStore, Lease, LeaseStore

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
