"""The policies of a tenant's domains, kept as one object beside the keys and the ledger."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.core.domains import DEFAULT_POLICY, DOMAINS, FIELDS, RetentionPolicy, normalize
from holdfast.core.errors import (
    ConflictError,
    InvalidInputError,
    ObjectDamagedError,
    ObjectMissingError,
    ObjectStoreUnavailableError,
    StoreBusyError,
    StoreTooNewError,
)
from holdfast.core.times import iso, moment
from holdfast.ports.objects import ObjectStore

#: The format; a newer one is left alone.
VERSION: Final = 1
FILE: Final = "retention-policies.json"
_FOLDER: Final = "state/"
_DEFAULT_TENANT: Final = "default"
_TRIES: Final = 2_000


class Policies(NamedTuple):
    """Both policies, and when either was last changed; ``None``: never."""

    memory: RetentionPolicy
    rag: RetentionPolicy
    updated_at: str | None

    def of(self, domain: str) -> RetentionPolicy:
        """The policy of a domain."""
        return self.memory if domain == "memory" else self.rag

    def to_dict(self) -> dict[str, Any]:
        """As callers see them."""
        policies = {domain: self.of(domain).as_dict() for domain in DOMAINS}
        return {"version": VERSION, "updated_at": self.updated_at, **policies}


UNSET: Final = Policies(DEFAULT_POLICY, DEFAULT_POLICY, None)


class DomainStates:
    """Reads and changes a tenant's policies. A change is whole or not there, and none is lost to another's."""

    def __init__(self, objects: ObjectStore, tenant: str) -> None:
        self._objects = objects
        self._tenant = tenant
        part = "" if tenant == _DEFAULT_TENANT else f"{hashlib.sha256(tenant.encode()).hexdigest()[:32]}/"
        self._name = f"{_FOLDER}{part}{FILE}"

    @property
    def place(self) -> str:
        """Where they are, for a message."""
        return f"{self._objects.url}/{self._name}"

    def read(self) -> Policies:
        """The policies as they are now; the default, if none was ever set."""
        return self._read()[0]

    def change(self, edit: Callable[[Policies], Policies]) -> Policies:
        """Put what ``edit`` makes of the policies in their place; it is asked again if another was faster."""
        self._objects.prepare()
        for _ in range(_TRIES):
            known, tag = self._read()
            wanted = edit(known)
            data = (
                json.dumps({"tenant": self._tenant, **wanted.to_dict()}, ensure_ascii=False, indent=2).encode() + b"\n"
            )
            try:
                self._objects.put(self._name, data, absent=tag is None, match=tag)
            except ConflictError:  # another has changed them meanwhile
                continue
            return wanted
        raise StoreBusyError(f"{self.place} is changed by so many others that this change found no turn; try again")

    def _read(self) -> tuple[Policies, str | None]:
        try:
            data, tag = self._objects.get_with_tag(self._name)
        except ObjectMissingError:
            return UNSET, None
        except ObjectStoreUnavailableError:
            if any(self._objects.names(_FOLDER)):  # one that is away says so here, too
                raise
            return UNSET, None  # nothing was ever kept there: the place has not been made
        return self._parse(data), tag

    def _parse(self, data: bytes) -> Policies:
        try:
            kept: Any = json.loads(data)
            version = kept["version"]
            if isinstance(version, int) and version > VERSION:
                raise StoreTooNewError(
                    f"{self.place} has version {version}, this Holdfast knows up to {VERSION}; nothing was changed; "
                    "use the newer Holdfast that wrote it"
                )
            found = {domain: _policy(kept[domain]) for domain in DOMAINS}
            moment(kept["updated_at"])
            if version != VERSION or kept["tenant"] != self._tenant:
                raise ValueError(f"version {version!r} of tenant {kept['tenant']!r}")  # noqa: TRY301 - one message
        except (ValueError, KeyError, TypeError) as problem:
            raise ObjectDamagedError(
                f"{self.place} is damaged ({type(problem).__name__}: {problem}); nothing was changed: bring it back "
                "from a copy, or move it away to begin with the default policies"
            ) from problem
        return Policies(found["memory"], found["rag"], kept["updated_at"])


def _policy(kept: dict[str, Any]) -> RetentionPolicy:
    """A policy as it was written; what is not whole, or out of bounds, was not written here."""
    policy = normalize({name: kept[name] for name in FIELDS}, DEFAULT_POLICY)
    if policy.as_dict() != kept:
        raise InvalidInputError("a policy in it is not as it was written")
    return policy


def change_policy(policies: Policies, domain: str, policy: RetentionPolicy, now: int) -> Policies:
    """The policies with another for one domain, as changed now."""
    changed = policies._replace(memory=policy) if domain == "memory" else policies._replace(rag=policy)
    return changed._replace(updated_at=iso(now))
