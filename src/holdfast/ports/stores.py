"""Every store of an engine: the one list of them, as a tenant has them, and how a store is read in pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.errors import NotFoundError, quote
from holdfast.core.records import Subject

if TYPE_CHECKING:  # what a process does not ask for is not loaded
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
    from holdfast.ports.session_parts import PartRegistration, PartStore, SessionPart
    from holdfast.ports.subjects import SubjectReader, SubjectStore

T = TypeVar("T")


class Stores:
    """One of each, over one database. A store is made when it is first asked for: most processes need few of them."""

    records: RecordStore
    versions: VersionStore
    provenance: ProvenanceStore
    kept_out: KeptOutStore
    feed: RecallFeed
    history: History
    short_term: ShortTermStore
    facts: FactStore
    schemas: SchemaStore
    rules: RuleStore
    dues: DueStore
    figures: FigureStore
    holds: HoldStore
    packs: PackStore
    audit: AuditStore
    clock_store: ClockStore
    jobs: JobStore
    leases: LeaseStore
    registry: RegistryStore
    parts: PartStore
    subjects: SubjectStore
    reader: SubjectReader
    keys: KeyStore
    sign_ins: SignInStore
    console_jobs: ConsoleJobStore
    replies: ReplyStore
    identity: IdentityStore
    make: Callable[[str], Any]
    """Makes the store of a name."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self.make = make

    if not TYPE_CHECKING:  # or every attribute would be known

        def __getattr__(self, name: str) -> Any:
            if name not in Stores.__annotations__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return self.__dict__.setdefault(name, self.make(name))


@dataclass(frozen=True)
class Tenant(Stores):
    """One tenant of an open store, for the services that work for it: the stores, its name, the clock, new ids,
    and parts.
    """

    make: Callable[[str], Any]
    name: str
    now: Callable[[], int]
    new_id: Callable[[int], str]
    open_part: Callable[[PartRegistration, str | None], SessionPart]
    """What belongs to sessions and lies elsewhere, ready to be used; with the URL that it lies at, if that is known."""

    def check_known(self, user_id: str, item: str) -> None:
        """``NotFoundError`` if something is no memory or message of a user, and was none: what was may come back."""
        whose = Subject(self.name, user_id)
        if self.records.get(whose, item) or self.history.find_message(whose, item) or self.audit.of_item(whose, item):
            return
        raise NotFoundError(f"no memory or message {quote(item)} is or was user {user_id!r}'s; nothing was changed")


def read_pages(read: Callable[..., tuple[list[T], Any]], limit: int) -> Iterator[list[T]]:
    """Every page of what ``read(after=…, limit=…)`` returns: some of it, and where to go on from."""
    place: dict[str, Any] = {}
    while True:
        some, after = read(**place, limit=limit)
        yield some
        if len(some) < limit:
            return
        place = {"after": after}
