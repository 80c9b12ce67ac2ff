"""Tombstones: the names that subjects have while they are being erased; and marks, which tell others that they were."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from holdfast.core.records import Subject

#: No tenant has a control character, so that no user can have such a name.
_BEGINNING: Final = "\x01erasing"
#: So long does a store keep the mark of an erasure.
MARK_DAYS: Final = 7


class Tombstone(NamedTuple):
    """What is left of a subject's name while it is being erased."""

    number: int
    alias: str
    """The pseudonym, under which the data key and the cold objects go."""
    mark: str
    """By which the subject's name can be told to have been this one."""
    subject: Subject | None
    """The name, as long as something that is found by it only may be left elsewhere."""

    def is_of(self, subject: Subject) -> bool:
        """Whether this was the subject's name."""
        return self.mark == _mark(self.alias, subject)

    @property
    def name(self) -> str:
        """The name it goes by now."""
        parts = (_BEGINNING, self.alias, self.mark, *([] if self.subject is None else [self.subject]))
        return "/".join(parts)


def tombstone_for(number: int, alias: str, subject: Subject) -> Tombstone:
    """The tombstone of a subject that is to be erased."""
    return Tombstone(number, alias, _mark(alias, subject), subject)


def read_tombstone(number: int, name: str) -> Tombstone:
    """The tombstone that goes by a name."""
    _, alias, mark, *subject = name.split("/", 3)
    return Tombstone(number, alias, mark, Subject.parse(subject[0]) if subject else None)


def is_tombstone(subject: str) -> bool:
    """Whether a subject is being erased, by its name."""
    return subject.startswith(_BEGINNING)


class ErasureMark(NamedTuple):
    """That a subject was erased, for those who have its name: nobody else can read whose mark it is."""

    salt: bytes
    digest: bytes
    age_seconds: float = 0.0

    def is_of(self, subject: Subject) -> bool:
        """Whether this subject was erased."""
        return self.digest == _digest(self.salt, subject)


def mark_erasure(subject: Subject, salt: bytes) -> ErasureMark:
    """The mark of a subject that is being erased; the salt is random, and used once."""
    return ErasureMark(salt, _digest(salt, subject))


def _digest(salt: bytes, subject: Subject) -> bytes:
    return hashlib.sha256(salt + subject.encode()).digest()


def _mark(alias: str, subject: Subject) -> str:
    return hashlib.sha256(f"{alias}/{subject}".encode()).hexdigest()[:32]
