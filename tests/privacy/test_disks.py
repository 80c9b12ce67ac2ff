"""Disks that are full, or for reading only: what can be done is done, and what cannot says so."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from clocks import FakeClock
from holdfast import Holdfast
from holdfast.core.errors import StoreFullError, StoreReadOnlyError
from homes import ENGINES, Homes, on_sqlite

CHILD = Path(__file__).with_name("reader.py")


@pytest.fixture(scope="session", params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return cast("str", request.param)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """No file of this process can be written beyond a size, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def can_mount(folder: Path) -> bool:
    """Mount a small disk at a folder; whether this process may."""
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A disk of its own at a folder, if this process may mount one; whether it may."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = can_mount(folder)
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def fill_up(folder: Path) -> None:
    """Leave no room on a disk."""
    with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(folder).free == 0


# --- a full disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_name", ["postgres"])
def test_the_first_backup_on_a_full_disk_says_that_it_is_full(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "guide").add("likes tea", "long_term")
        with files_no_larger_than(40), pytest.raises(StoreFullError, match=r"master key .* the disk is full"):
            holdfast.backups.create()
        assert not (home / "keys" / "master.key").exists()
        assert holdfast.backups.create().memories == 1, "with room again"


def test_the_first_backup_on_a_disk_of_its_own_that_is_full(homes: Homes, clock: FakeClock, tmp_path: Path) -> None:
    home = homes.new()
    home.mkdir(exist_ok=True)
    with small_disk(tmp_path / "disk") as mounted, (home / "holdfast.toml").open("a") as file:
        if not mounted:  # what a limit on files does is tried above
            return
        file.write(f"state_url = {json.dumps((tmp_path / 'disk').as_uri())}\n")
        file.write(f"master_key = {json.dumps(f'file:{tmp_path}/disk/keys/master.key')}\n")
        file.flush()
        fill_up(tmp_path / "disk")
        with Holdfast.open(home=home, clock=clock) as holdfast:
            holdfast.manager("ann", "guide").add("likes tea", "long_term")
            with pytest.raises(StoreFullError, match="disk is full"):
                holdfast.backups.create()


def test_an_erasure_that_a_full_disk_keeps_from_beginning_says_so(home: Path, clock: FakeClock) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        memory = holdfast.manager("ann", "guide")
        memory.add("likes tea", "long_term")
        with files_no_larger_than(0), pytest.raises(StoreFullError, match=r"has not begun, and nothing was erased"):
            holdfast.erase_user("ann")
        assert memory.retrieve("tea")
        assert holdfast.ledger.last() == 0
        assert not holdfast.erase_user("ann").pending


@on_sqlite
def test_an_erasure_that_has_begun_on_a_full_disk_is_carried_out_at_the_next_opening(
    home: Path, clock: FakeClock
) -> None:
    with Holdfast.open(home=home, clock=clock) as holdfast:
        holdfast.manager("ann", "guide").add("likes tea", "long_term")
        holdfast.erase_user("nobody")  # the keys that it takes are there
        with (
            files_no_larger_than(2_000),  # there is room for an entry of the ledger, and not for a page of the store
            pytest.raises(StoreFullError, match=r"has begun, and is carried out when the store is next opened"),
        ):
            holdfast.erase_user("ann")
        assert holdfast.ledger.last() == 1
    with Holdfast.open(home=home, clock=clock) as holdfast:
        assert holdfast.manager("ann", "guide").retrieve("tea") == []
        assert [one["subject"] for one in holdfast.certificates.list()], "and certified"


# --- a disk for reading only ------------------------------------------------------------------------------------------


def read_as_nobody(home: Path) -> dict[str, Any]:
    """What a process can do with a home that it may read and not write."""
    done = subprocess.run(
        [sys.executable, str(CHILD), str(home)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return cast("dict[str, Any]", json.loads(done.stdout))


@pytest.fixture
def readable() -> Iterator[Path]:
    """A home that every user of the machine can reach, with memories in it; it is closed."""
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "home"
        let_everyone(Path(folder), read_only=False)


def let_everyone(folder: Path, *, read_only: bool) -> None:
    """Let every user read a folder, and write it or not."""
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o555 if path.is_dir() else 0o444) if read_only else (0o777 if path.is_dir() else 0o666))


def remember(home: Path) -> None:
    """A user with a memory, a message and a backup."""
    with Holdfast.open(home=home) as holdfast:
        memory = holdfast.manager("ann", "guide", "trip")
        memory.add("likes tea", "long_term")
        memory.short_term.add_message("user", "hello")
        holdfast.backups.create()


READ = {"found": ["likes tea"], "got": "likes tea", "history": ["hello"], "exported": 1}


@pytest.mark.parametrize("is_open", [False, True], ids=["nobody has it open", "its owner has it open"])
def test_a_home_that_may_not_be_written_can_be_read(readable: Path, is_open: bool) -> None:
    remember(readable)
    with Holdfast.open(home=readable) if is_open else nullcontext():
        let_everyone(readable, read_only=True)

        said = read_as_nobody(readable)

        let_everyone(readable, read_only=False)
    assert {name: said[name] for name in READ} == READ
    assert said["added"]["code"] == "store_read_only"
    assert "can be read, and not written" in said["added"]["message"]
    assert said["erased"]["code"] in {"store_read_only", "object_store"}
    assert "has not begun" in said["erased"]["message"]
    assert said["swept"]["code"] == "store_read_only"


def test_a_disk_that_is_mounted_for_reading_only_can_be_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:  # what permissions do is tried above
            return
        remember(tmp_path / "disk" / "home")
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)  # noqa: S607
        with Holdfast.open(home=tmp_path / "disk" / "home") as holdfast:
            memory = holdfast.manager("ann", "guide", "trip")
            assert [item["content"] for item in memory.retrieve("tea")] == ["likes tea"]
            with pytest.raises(StoreReadOnlyError, match="can be read, and not written"):
                memory.add("likes coffee", "long_term")


def test_an_old_copy_for_reading_only_does_not_show_who_was_erased(readable: Path) -> None:
    remember(readable)
    shutil.copyfile(readable / "holdfast.db", readable / "old.db")
    with Holdfast.open(home=readable) as holdfast:
        holdfast.erase_user("ann")
    (readable / "old.db").replace(readable / "holdfast.db")
    let_everyone(readable, read_only=True)

    said = read_as_nobody(readable)

    assert said["code"] == "store_read_only"
    assert "was erased and is in this store" in said["message"]


def test_a_log_that_was_left_beside_a_file_for_reading_only_is_not_passed_over(readable: Path) -> None:
    remember(readable)
    with Holdfast.open(home=readable) as holdfast:
        holdfast.manager("ann", "guide").add("likes biscuits", "long_term")
        for ending in ("", "-wal"):  # as a kill leaves them, without the index of the log
            shutil.copyfile(readable / f"holdfast.db{ending}", readable / f"copy.db{ending}")
    for ending in ("", "-wal"):
        (readable / f"copy.db{ending}").replace(readable / f"holdfast.db{ending}")
    let_everyone(readable, read_only=True)

    said = read_as_nobody(readable)

    assert said["code"] == "store_read_only"
    assert "has a log beside it" in said["message"]
