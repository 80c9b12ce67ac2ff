"""A disk that loses power: it knows which writes were synced, and what may be left of the others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

_BASE = "unix"
_SECTOR = 512
#: A write (where, what) or, with ``None``, a cut (to which size).
_Change = tuple[int, bytes | None]


class _State:
    """One file: what is on the disk for sure, and what was written since the last sync."""

    def __init__(self, path: Path) -> None:
        self.durable = bytearray(path.read_bytes() if path.exists() else b"")
        self.pending: list[_Change] = []
        self.syncs = 0

    def sync(self) -> None:
        self.syncs += 1
        for change in self.pending:
            _apply(self.durable, change)
        self.pending.clear()


def _apply(image: bytearray, change: _Change) -> None:
    where, what = change
    if what is None:
        del image[where:]
    else:
        image.extend(bytes(max(0, where - len(image))))
        image[where : where + len(what)] = what


class Disk:
    """All files that were opened while it was the disk."""

    def __init__(self) -> None:
        self.files: dict[str, _State] = {}

    def file(self, path: Path) -> _State:
        return self.files[str(path)]

    def unsynced(self) -> list[str]:
        """Files with writes that a loss of power would lose."""
        return [path for path, state in self.files.items() if state.pending]

    def lose_power(self, folder: Path, chance: random.Random | None = None) -> None:
        """Write what is left into another folder: what was synced and, by chance, some of the rest, torn or whole."""
        folder.mkdir()
        for path, state in self.files.items():
            image = bytearray(state.durable)
            for where, what in state.pending if chance else ():
                assert chance is not None
                if chance.random() < 0.5:
                    kept = what if what is None else what[: _SECTOR * chance.randint(1, len(what) // _SECTOR + 1)]
                    _apply(image, (where, kept))
            (folder / Path(path).name).write_bytes(image)


class _File(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], disk: Disk) -> None:
        super().__init__(_BASE, name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._state = disk.files.setdefault(str(path), _State(Path(str(path))))

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._state.pending.append((offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:
        super().xTruncate(newsize)
        self._state.pending.append((newsize, None))

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._state.sync()


class _Files(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__("power", _BASE, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> _File:
        return _File(name, flags, self._disk)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self._disk.files.pop(filename, None)


@contextmanager
def disk() -> Iterator[Disk]:
    """Files that are opened in the block lie on a disk whose power can be lost; close them before its end."""
    recorded = Disk()
    files = _Files(recorded)
    try:
        yield recorded
    finally:
        files.unregister()


def survivors(path: Path) -> tuple[list[str], str]:
    """The ids of the records in a file, and what SQLite says of its state; read past the recording disk."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=_BASE)
    try:
        ids = [str(row[0]) for row in connection.execute("SELECT id FROM records ORDER BY key")]
        return ids, str(connection.pragma("integrity_check"))
    finally:
        connection.close()
