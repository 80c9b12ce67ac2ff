"""Lost keys: when the master key is lost, the keys that it opened are abandoned, and new ones are made.

What was sealed under abandoned keys cannot be read again. A backup that needs one of them is noted as bad, so that no
later backup refers to it. An abandoned key keeps its owner's pseudonym, and erasing the owner destroys it: if the
master key is found one day, it opens nothing of an erased user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from holdfast.backups.catalog import Catalog
from holdfast.backups.layout import STORE_KEY, Manifest
from holdfast.core.errors import ObjectDamagedError
from holdfast.ports.coordination import IdentityStore
from holdfast.ports.objects import ObjectReader
from holdfast.privacy.sealed_objects import owner_of

_REASON: Final = "keys that it was sealed under were abandoned, because their master key was lost"


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Keys that cannot be opened, and what cannot be read without them; falsy when there are none."""

    users: int
    """Keys of users, and of tenants' domain archives."""
    store: bool
    """Whether the key is among them that seals what belongs to everybody."""
    signing: bool
    """Whether the key is among them that signs certificates and backups."""
    backups: tuple[str, ...]
    """The backups that cannot be read, or not wholly."""
    objects: int
    """The cold objects that cannot be read."""
    keyring: str | None = None
    """The keyring that the store belonged to, if it is another than the one that is there."""

    def __bool__(self) -> bool:
        return bool(self.users or self.store or self.signing or self.keyring)

    def as_dict(self) -> dict[str, Any]:
        """The same, for programs."""
        return {name: getattr(self, name) for name in self.__slots__} | {"backups": list(self.backups)}

    def describe(self) -> str:
        """What abandoning the keys means, in words."""
        if self.keyring is not None:
            return (
                f"the store belongs to keyring {self.keyring}, which is not the one that is there: it would belong to "
                "this one from now on, and machines that use the other one are refused. What was sealed under the "
                f"other one cannot be read again (cold objects: {self.objects:,}, and its backups); if that keyring is "
                "anywhere, name it in HOLDFAST_STATE_URL instead"
            )
        count = self.users + self.store + self.signing
        return (
            f"the master key does not open {count:,} of the keys ({self.users:,} of users"
            f"{', the one of the store' if self.store else ''}{', the one that signs' if self.signing else ''}): they "
            "would be abandoned, and new ones made. What was sealed under them cannot be read again "
            f"(backups: {len(self.backups):,}, cold objects: {self.objects:,}); if there is a copy of the old master "
            "key anywhere, bring that back instead"
        )


class LostKeys:
    """Finds the keys that the master key does not open, and abandons them."""

    def __init__(self, catalog: Catalog, cold: ObjectReader, identity: IdentityStore) -> None:
        self._keyring, self._signing, _ = catalog.state
        self._catalog = catalog
        self._cold = cold
        self._identity = identity

    def find(self) -> Abandoned:
        """What there is to abandon. ``MasterKeyError`` if there is no master key to make new keys with: it may be
        missing only for the moment.
        """
        self._keyring.require_master()
        lost = list(self._keyring.find_unopened())
        data = {key_id for purpose, key_id in lost if purpose == "data"}
        owner = self._other_keyring()
        if owner is not None:
            there = set(self._keyring.ids()) - data
            lacking = sum(owner_of(name) not in there for name in self._cold.names("archive/"))
            return Abandoned(len(data - {STORE_KEY}), STORE_KEY in data, False, (), lacking, owner)
        return Abandoned(
            users=len(data - {STORE_KEY}),
            store=STORE_KEY in data,
            signing=any(purpose == "signing" for purpose, _ in lost),
            backups=tuple(one.id for one in self._catalog.whole() if self._needs(one, data)) if data else (),
            objects=sum(owner_of(name) in data for name in self._cold.names("archive/")) if data else 0,
        )

    def _other_keyring(self) -> str | None:
        """The keyring that the store belongs to, if it is another than the one that is there."""
        known = self._identity.read()
        return None if known is None or known.keyring == self._keyring.id() else known.keyring

    def _needs(self, manifest: Manifest, keys: set[str]) -> bool:
        try:
            return any(doc.key in keys for doc in self._catalog.docs(manifest))
        except ObjectDamagedError:  # it cannot be used anyway
            return False

    def abandon(self, *, now: int) -> None:
        """Abandon them. If it is cut short, doing it again goes on: backups are noted before the keys that they need
        are abandoned.
        """
        if self._other_keyring() is not None:
            self._identity.bind(self._keyring.make_id(), replace=True)
        lost = list(self._keyring.find_unopened())
        current = self._signing.current_id()
        for purpose, key_id in lost:
            if purpose == "signing":
                self._keyring.abandon(purpose, key_id)
                if key_id == current:
                    self._signing.rotate(now=now)
        data = {key_id for purpose, key_id in lost if purpose == "data"}
        for one in self._catalog.whole() if data else ():
            if self._needs(one, data):
                self._catalog.note_trial(one.id, [_REASON], good=False, memories=0, now=now)
        for key_id in sorted(data):
            self._keyring.abandon("data", key_id)
            if self._catalog.is_erased(key_id):  # an erasure that came between has not seen it there
                self._keyring.destroy(key_id)
