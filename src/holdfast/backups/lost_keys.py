"""Going on after the master key was lost: the keys that nobody can open are set aside, and others take their place.

What was sealed under them cannot be read again, and says so: a backup that needs one of them is noted as bad, so that
no later one builds upon it. A key that was set aside keeps its owner's pseudonym, and is destroyed with the owner's
key: should the master key turn up one day, it opens nothing of who was erased.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.backups.catalog import Catalog
from holdfast.backups.format import STORE_KEY, Manifest
from holdfast.core.errors import ObjectDamagedError
from holdfast.ports.identity import IdentityStore
from holdfast.ports.objects import ObjectStore
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.keys.signing import SigningKeys
from holdfast.privacy.sealed_objects import owner_of

_WHY = "keys that it was sealed under were abandoned, because their master key was lost"


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Keys that cannot be opened, and what cannot be read for the lack of them; falsy when there are none."""

    users: int
    """Keys of users, and of tenants' domain archives."""
    store: bool
    """Whether the key is among them that backups seal under what belongs to everybody."""
    signing: bool
    """Whether the key is among them that certificates and backups are signed with."""
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

    def told(self) -> str:
        """What abandoning them means, in words."""
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
            "would be set aside, and others made in their place. What was sealed under them cannot be read again "
            f"(backups: {len(self.backups):,}, cold objects: {self.objects:,}); if there is a copy of the old master "
            "key anywhere, bring that back instead"
        )


class Abandonment:
    """Finds the keys that the master key does not open, and sets them aside."""

    def __init__(
        self,
        keyring: Keyring,
        signing: SigningKeys,
        catalog: Catalog,
        cold: ObjectStore,
        *,
        identity: IdentityStore,
        is_erased: Callable[[str], bool],
    ) -> None:
        self._keyring = keyring
        self._signing = signing
        self._catalog = catalog
        self._cold = cold
        self._identity = identity
        self._is_erased = is_erased

    def look(self) -> Abandoned:
        """What there is to abandon. ``MasterKeyError`` if there is no master key that other keys could be made under:
        it may merely not be there at the moment.
        """
        self._keyring.require_master()
        lost = list(self._keyring.unopened())
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
        except ObjectDamagedError:  # it is of no use anyway
            return False

    def run(self, *, now: int) -> None:
        """Set them aside. Cut short, doing it again goes on: backups are noted before the keys go that they need."""
        if self._other_keyring() is not None:
            self._identity.bind(self._keyring.make_id(), replace=True)
        lost = list(self._keyring.unopened())
        current = self._signing.current_id()
        for purpose, key_id in lost:
            if purpose == "signing":
                self._keyring.set_aside(purpose, key_id)
                if key_id == current:
                    self._signing.rotate(now=now)
        data = {key_id for purpose, key_id in lost if purpose == "data"}
        for one in self._catalog.whole() if data else ():
            if self._needs(one, data):
                self._catalog.note_trial(one.id, [_WHY], good=False, memories=0, now=now)
        for key_id in sorted(data):
            self._keyring.set_aside("data", key_id)
            if self._is_erased(key_id):  # an erasure that came between has not seen where it went
                self._keyring.destroy(key_id)
