"""Holdfast, embedded and on PostgreSQL. It claims every obligation."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast import Holdfast, MemoryManager, NotFoundError, __version__
from holdfast.privacy.certificates import verify_certificate
from holdfast.privacy.keys.signatures import public_pem, read_public
from holdfast_prove.adapter import Place, Proof
from holdfast_prove.systems.postgres_server import Database, analyze, data_folder, read_tables

_BEGIN: Final = datetime(2026, 1, 15, 12, tzinfo=UTC)
_DAY: Final = 86_400


class HoldfastOnSqlite:
    """Holdfast on its embedded engine. Its clock is a file, so that every process has the same time."""

    version = __version__
    processes = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = folder / "clock"
        self._home = max(folder.glob("home-*"), default=None) or self._new_home()
        self._open()

    def _new_home(self, **settings: str) -> Path:
        """A folder for a store that is not there yet, with the settings that it is opened with."""
        home = self._folder / f"home-{len(list(self._folder.glob('home-*')))}"
        home.mkdir(mode=0o700)
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in {**self._settings(), **settings}.items()]
        (home / "holdfast.toml").touch(mode=0o600)
        (home / "holdfast.toml").write_text("".join(lines))
        return home

    def _settings(self) -> dict[str, str]:
        """What a new store is opened with, beside its home."""
        windows = os.environ.get("HOLDFAST_PROVE_VALKEY")
        return {"short_term_url": windows} if windows else {}

    def _open(self) -> None:
        self._holdfast = Holdfast.open(home=self._home, clock=self._now)

    def _now(self) -> datetime:
        return _BEGIN + timedelta(microseconds=int(self._clock.read_text()) if self._clock.exists() else 0)

    def _memory(self, user_id: str) -> MemoryManager:
        return self._holdfast.manager(user_id, "prover", f"session-of-{user_id}")

    def add(self, user_id: str, text: str) -> str:
        """Store a long-term memory."""
        return self._memory(user_id).add(text, "long_term")["memory_id"]

    def search(self, user_id: str, query: str) -> list[str]:
        """Recall from every kind of memory."""
        found = self._memory(user_id).retrieve(query, "all", top_k=20, include_archived=True)
        return [str(one["content"]) for one in found]

    def get(self, user_id: str, record_id: str) -> str | None:
        """Read a memory."""
        try:
            return str(self._memory(user_id).get(record_id)["content"])
        except NotFoundError:
            return None

    def delete(self, user_id: str, record_id: str) -> None:
        """Send a memory, and what was derived from it, to the recycle bin."""
        self._memory(user_id).delete(record_id, with_derived=True)

    def erase_user(self, user_id: str) -> Proof | None:
        """Erase a user for good; the certificate, and the key that it was signed with."""
        erasure = self._holdfast.erase_user(user_id)
        if erasure.certificate is None:
            return None
        signing = self._holdfast.certificates._keys
        public = signing.public(erasure.certificate["key"]["id"])
        return json.dumps(erasure.certificate).encode(), public_pem(public or b"")

    def places(self) -> Iterable[Place]:
        """All files (the database with its log, archive, backups, keys, ledger, certificates), and keys on Valkey."""
        windows = self._holdfast.settings.short_term_url
        return [*sorted(self._folder.glob("home-*")), *(_read_valkey(windows) if windows else ())]

    def reopen(self) -> None:
        """Close the store and open it again."""
        self._holdfast.close()
        self._open()

    def reindex(self) -> None:
        """Embed every memory anew where it lacks vectors, and read every index again."""
        self._holdfast.reembed()
        self.reopen()

    def settle(self, verb: str) -> None:
        """After a delete: 15 days in the recycle bin, and a sweep. After erase_user: nothing."""
        if verb == "delete":
            for _ in range(2):
                self.wait(16 * _DAY)
                self._holdfast.sweep(confirm=True)

    def wait(self, seconds: float) -> None:
        """Move the clock on."""
        passed = round((self._now() - _BEGIN + timedelta(seconds=seconds)) / timedelta(microseconds=1))
        self._clock.write_text(str(passed))

    def expire(self, user_id: str, text: str, seconds: float) -> str:
        """Store a memory with a rule of its own."""
        record_id = self.add(user_id, text)
        self._holdfast.policies.set(
            "long_term", user_id=user_id, memory_id=record_id, delete_after_days=seconds / _DAY, confirm=True
        )
        return record_id

    def correct(self, user_id: str, record_id: str, text: str) -> None:
        """Let a memory say something else."""
        self._memory(user_id).correct(record_id, text)

    def hold(self, user_id: str, record_id: str) -> None:
        """Put a memory under a hold."""
        self._holdfast.holds.add(user_id=user_id, memory_id=record_id, reason="a case", author="prover")

    def keep_out(self, user_id: str, record_id: str) -> None:
        """Delete a memory, and keep its text out."""
        self._memory(user_id).delete(record_id, with_derived=True, keep_out=True)

    def derive(self, user_id: str, record_id: str, text: str) -> str:
        """Store what was made from a memory."""
        return self._memory(user_id).add(text, "long_term", derived_from=[record_id])["memory_id"]

    def embed(self, text: str) -> Sequence[float]:
        """The vector of a text."""
        vector: list[float] = self._holdfast.embedder.embed([text])[0].tolist()
        return vector

    def spread(self, user_id: str, text: str) -> None:
        """Put a text into every kind of memory, the archive and a backup."""
        memory = self._memory(user_id)
        memory.short_term.add_message("user", text)
        memory.add(text, "persona", {"said": text})
        memory.episodic.record_episode(text, [text], messages=[text])
        memory.entity.add(text[-60:], attributes={"said": text})
        memory.structured.put("notes", {"said": text}, key="said")
        self._holdfast.policies.set("structured", user_id=user_id, archive_after_days=1, confirm=True)
        self.wait(2 * _DAY)
        self._holdfast.sweep(confirm=True)
        self._holdfast.backups.create()

    def backup(self) -> str:
        """Make a backup."""
        return self._holdfast.backups.create().id

    def restore(self, backup: str) -> None:
        """Restore into a new home, which has the old one's backups, state store and master key."""
        self._holdfast.close()
        old = self._home
        self._home = self._new_home(
            backup_url=f"file://{old}/backups",
            archive_url=f"file://{old}/archive",
            state_url=f"file://{old}",
            master_key=f"file:{old}/keys/master.key",
        )
        self._open()
        self._holdfast.backups.restore(backup)

    @staticmethod
    def verify(certificate: bytes, public_key: bytes) -> bool:
        """Whether a certificate is genuine, by the public key that was handed out."""
        return bool(verify_certificate(certificate, public_key=read_public(public_key)))

    def close(self) -> None:
        """Close the store."""
        self._holdfast.close()


def _read_valkey(url: str) -> Iterator[Place]:
    """Every key of a Valkey server, with what is in it."""
    from valkey import Valkey  # noqa: PLC0415 - not needed without a server

    read = {
        "string": "get",
        "hash": "hgetall",
        "set": "smembers",
        "list": "lrange",
        "zset": "zrange",
        "stream": "xrange",
    }
    with Valkey.from_url(url) as client:
        for key in client.scan_iter():
            kind = client.type(key).decode()
            held = getattr(client, read[kind])(key, *((0, -1) if kind in {"list", "zset"} else ()))
            yield f"valkey {key.decode(errors='replace')}", held if isinstance(held, bytes) else repr(held).encode()


class HoldfastOnPostgres(HoldfastOnSqlite):
    """Holdfast on PostgreSQL: rows are out of every table that the server can show; its files are the operator's."""

    def __init__(self, folder: Path) -> None:
        self._databases: list[Database] = []
        super().__init__(folder)

    def _settings(self) -> dict[str, str]:
        self._databases.append(Database.new())
        return {**super()._settings(), "url": self._databases[-1].url}

    def places(self) -> Iterator[Place]:
        """All files of the home, and every row of every table."""
        yield from super().places()
        yield from read_tables(self._holdfast.settings.url)

    def maintain(self) -> None:
        """Let the server make its statistics."""
        analyze(self._holdfast.settings.url)

    def other_places(self) -> Iterable[Path]:
        """The server's files: dead rows and the write-ahead log go as the server reuses their space."""
        return data_folder(self._holdfast.settings.url)

    def close(self) -> None:
        """Close the store, and drop the databases that were made for it."""
        super().close()
        for database in self._databases:
            database.drop()
