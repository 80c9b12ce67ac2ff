"""inspeximus with signed receipts: one store, in which each record names its user and has them as its source."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

from inspeximus import Inspeximus, new_receipt_keypair, verify_erasure_certificate

from holdfast_prove.adapter import Claims, Place, Proof

_README: Final = "https://pypi.org/project/inspeximus/3.23.1/"
_SOURCE: Final = "https://github.com/DanceNitra/inspeximus (Inspeximus.forget)"
_FORGET: Final = (
    "a forgotten memory cannot resurface via recall, via a consolidation link, or via a stale derived-summary pointer.",
    _SOURCE,
)
_SUBJECT: Final = (
    (
        "forget_subject() removes every record in this store attributable to a person, including summaries that "
        "inherited it, and leaves a signed content-free tombstone."
    ),
    _README,
)


class InspeximusMemory:
    """A correction is a write under the same key; erasing a user is ``forget_subject`` with the exact source. What
    other processes wrote is read by ``refresh``, which its documentation says is safe to call before every read.
    """

    version = version("inspeximus")
    processes = True
    claims: ClassVar[Claims] = {
        "search": _FORGET,
        "restart": _FORGET,
        "erased": _SUBJECT,
        "processes": ("another process tails the table by seq and sees a commit on its next call", _README),
        "correction": ("remember(key=...) retires the old value by key.", _README),
        "proof": ("erasure_certificate() lets a third party check it with no private key.", _README),
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        keys = folder / "keys.json"
        if not keys.exists():
            keys.write_text(json.dumps(new_receipt_keypair()))
        self._secret, self._public = json.loads(keys.read_text())
        self._open()

    def _open(self) -> None:
        path = str(self._folder / "memory.json")
        self._store: Any = Inspeximus(path, receipts=True, receipt_key=self._secret, receipt_pubkey=self._public)

    def add(self, user_id: str, text: str) -> str:
        """Remember a text under a key of its own; the key is what corrections go by."""
        key = uuid4().hex
        record_id = self._store.remember(text, key=key, source={"doc": user_id}, user_id=user_id)
        return f"{key} {record_id}"

    def search(self, user_id: str, query: str) -> list[str]:
        """Recall the user's records."""
        self._store.refresh()
        return [one["text"] for one in self._store.recall(query, k=20, user_id=user_id)]

    def get(self, user_id: str, record_id: str) -> str | None:
        """The current value of the record's key."""
        del user_id
        self._store.refresh()
        found = self._store.current(record_id.partition(" ")[0])
        return None if not found else str(found["text"])

    def delete(self, user_id: str, record_id: str) -> None:
        """Forget a record, and what its key said before."""
        del user_id
        key = record_id.partition(" ")[0]
        self._store.forget(where=lambda record: record.get("key") == key)

    def erase_user(self, user_id: str) -> Proof:
        """Forget a subject; the certificate for the request, and the public key."""
        request = uuid4().hex
        self._store.forget_subject(user_id, request_id=request, exact=True)
        certificate = self._store.erasure_certificate(request)
        return json.dumps(certificate).encode(), self._public.encode()

    def places(self) -> Iterable[Place]:
        """The store and all that lies beside it."""
        return [self._folder]

    def reopen(self) -> None:
        """Open it again."""
        self._open()

    def correct(self, user_id: str, record_id: str, text: str) -> None:
        """Remember another value under the same key."""
        key = record_id.partition(" ")[0]
        self._store.remember(text, key=key, source={"doc": user_id}, user_id=user_id)

    def derive(self, user_id: str, record_id: str, text: str) -> str:
        """Remember what was made from a record."""
        key = uuid4().hex
        made = self._store.remember(text, key=key, user_id=user_id, derived_from=[record_id.partition(" ")[2]])
        return f"{key} {made}"

    @staticmethod
    def verify(certificate: bytes, public_key: bytes) -> bool:
        """Whether a certificate is genuine, signed, and by this key."""
        found = verify_erasure_certificate(
            json.loads(certificate), expected_pubkey=public_key.decode(), require_signed=True
        )
        return bool(found["valid"])
