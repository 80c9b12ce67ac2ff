"""The ledger of erasures: in order, never changed, and found out if it was."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.core.errors import LedgerError
from holdfast.privacy.ledger import Ledger
from holdfast.storage.objects import open_objects

KEYS = [f"{number:032x}" for number in range(20)]


def ledger(folder: Path) -> Ledger:
    return Ledger(open_objects(folder.as_uri()))


def test_erasures_are_listed_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    written = [ledger(tmp_path).begin(key, at=place) for place, key in enumerate(KEYS)]

    assert list(ledger(tmp_path).entries()) == written
    assert list(ledger(tmp_path).entries(after=15)) == written[15:]
    assert ledger(tmp_path).last() == 20
    assert ledger(tmp_path).find(KEYS[7]) == written[7]
    assert ledger(tmp_path).find("f" * 32) is None


def test_an_erasure_that_is_begun_again_is_the_same_one(tmp_path: Path) -> None:
    first = ledger(tmp_path).begin(KEYS[0], at=1)

    assert ledger(tmp_path).begin(KEYS[0], at=2) == first
    assert ledger(tmp_path).last() == 1


def test_an_entry_whose_mark_a_crash_has_taken_is_found_again(tmp_path: Path) -> None:
    entry = ledger(tmp_path).begin(KEYS[3], at=1)
    (mark,) = (path for path in (tmp_path / "erased").rglob("*") if path.is_file())
    mark.unlink()
    assert ledger(tmp_path).find(KEYS[3]) is None

    ledger(tmp_path).mend(entry)

    assert ledger(tmp_path).find(KEYS[3]) == entry


def test_an_erasure_that_is_put_off_goes_on_under_an_entry_of_its_own(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    first, other = kept.begin(KEYS[0], at=1), kept.begin(KEYS[1], at=1)
    kept.defer(KEYS[0])

    assert (kept.list_deferred(), kept.find(KEYS[0]), kept.list_erased(after=0)) == ([KEYS[0]], None, {KEYS[1]})

    again = kept.begin(KEYS[0], at=2)
    kept.carry_out(again)
    assert (again.no, kept.find(KEYS[0]), kept.list_deferred()) == (3, again, [])
    assert (kept.list_erased(after=first.no), kept.list_erased(after=other.no)) == ({KEYS[0], KEYS[1]}, {KEYS[0]})


def test_what_was_carried_out_is_not_put_off(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    kept.carry_out(kept.begin(KEYS[0], at=1))

    kept.mend(next(kept.entries()))
    kept.defer(KEYS[0])
    kept.defer(KEYS[1])

    assert (kept.is_carried_out(KEYS[0]), kept.is_carried_out(KEYS[1]), kept.list_deferred()) == (True, False, [])


def test_none_is_lost_when_many_begin_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: ledger(tmp_path).begin(key, at=1), KEYS))

    assert sorted(entry.key for entry in ledger(tmp_path).entries()) == KEYS


def test_a_new_store_has_an_empty_ledger(tmp_path: Path) -> None:
    assert list(ledger(tmp_path).entries()) == []
    assert ledger(tmp_path).last() == 0


@pytest.mark.parametrize("number", [1, 2, 3])
def test_any_change_is_found(tmp_path: Path, number: int) -> None:
    for key in KEYS[:3]:
        ledger(tmp_path).begin(key, at=1)
    path = tmp_path / "ledger" / f"{number:012}.json"
    whole = path.read_bytes()

    for place in range(len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(LedgerError):
            list(ledger(tmp_path).entries())
    path.write_bytes(whole)
    assert len(list(ledger(tmp_path).entries())) == 3


def test_a_missing_entry_is_found_unless_it_was_the_last(tmp_path: Path) -> None:
    for key in KEYS[:3]:
        ledger(tmp_path).begin(key, at=1)
    (tmp_path / "ledger" / f"{2:012}.json").unlink()

    with pytest.raises(LedgerError, match="2"):
        list(ledger(tmp_path).entries())
