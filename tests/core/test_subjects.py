"""A subject is a tenant and a user, and nobody else takes it apart."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

import holdfast
from holdfast.core.errors import InvalidScopeError
from holdfast.core.records import Subject

SOURCE = Path(holdfast.__file__).parent


def test_a_subject_has_a_tenant_and_a_user_who_may_have_a_slash() -> None:
    subject = Subject("acme", "ann/b")
    assert (subject.tenant, subject.user_id) == ("acme", "ann/b")
    assert subject == "acme/ann/b" == Subject.parse("acme/ann/b")
    assert (Subject("acme").tenant, Subject("acme").user_id) == ("acme", "")


def test_copies_of_a_subject_are_the_same_subject() -> None:
    subject = Subject("acme", "ann/b")
    for same in (copy.deepcopy(subject), pickle.loads(pickle.dumps(subject))):  # noqa: S301 - our own
        assert (type(same), same) == (Subject, subject)


def test_a_user_id_that_a_caller_gave_is_checked() -> None:
    assert Subject.check("acme", "ann") == "acme/ann"
    with pytest.raises(InvalidScopeError):
        Subject.check("acme", "")


def test_subjects_are_joined_and_split_in_one_place() -> None:
    by_hand = re.compile(r"""(tenant\}/)|((subject|whose|owner)\.(split|partition)\()""")
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "core" / "records.py"
        for line in path.read_text(encoding="utf-8").splitlines()
        if by_hand.search(line)
    ]
    assert found == []
