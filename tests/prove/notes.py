"""A store of notes that claims everything, and has one fault if it is told to: what the kit must find, and nothing else.

The fault is the name of its folder's parent (``…/<fault>/store-0``), so that every process of a trial has the same.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
import shutil
import struct
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

SECRET = b"a secret that verifiers have, which is good enough for a toy"


class Notes:
    """Notes in one file of JSON, with a clock of its own."""

    processes = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fault = next((part.removeprefix("fault-") for part in folder.parts if part.startswith("fault-")), "")
        self.file = folder / "notes.json"
        self.clock = folder / "clock"
        if not self.file.exists():
            self._write({"notes": {}, "out": [], "held": []})
        self._cache: dict[str, Any] = {}
        self._stale: list[Any] = []

    # --- within -------------------------------------------------------------------------------------------------------

    def _read(self) -> Any:
        if self.fault == "processes":
            self._cache = self._cache or json.loads(self.file.read_text())
            return self._cache
        return json.loads(self.file.read_text())

    def _write(self, state: Any) -> None:
        self.file.write_text(json.dumps(state))
        if self.fault == "processes":
            self._cache = state

    def _now(self) -> float:
        return float(self.clock.read_text()) if self.clock.exists() else 0.0

    def _mine(self, user_id: str) -> dict[str, Any]:
        late = 1.0 if self.fault == "expiry" else 0.0
        state = self._read()
        if self.fault == "expiry early":
            late = -0.5
        return {
            key: note
            for key, note in state["notes"].items()
            if note["user"] == user_id and (note["ends"] is None or self._now() < note["ends"] + late)
        }

    def _leave(self, name: str, text: str) -> None:
        """Leave something of a text beside the notes."""
        with (self.folder / name).open("ab") as file:
            file.write({"gzip": gzip.compress(text.encode()), "vector": _pack(text)}.get(name, text.encode()))

    def _remove(self, keys: Iterable[str], *, traces: bool = True) -> None:
        state = self._read()
        for key in list(keys):
            note = state["notes"].pop(key, None)
            if note is not None and traces:
                for name in ("log", "gzip", "vector"):
                    if self.fault == f"bytes {name}":
                        self._leave(name, note["text"])
                self._stale.append((key, note))
        self._write(state)

    # --- what every adapter has ---------------------------------------------------------------------------------------

    def add(self, user_id: str, text: str, ends: float | None = None, source: str = "") -> str:
        state = self._read()
        is_out = [user_id, text] in state["out"]
        if self.fault == "again wrongly":
            is_out = bool(state["out"]) and not is_out
        if self.fault != "again" and is_out:
            raise ValueError("it is kept out")
        key = uuid.uuid4().hex
        self._stale.clear()
        if self.fault != "nothing is kept":
            state["notes"][key] = {"user": user_id, "text": text, "ends": ends, "source": source}
        self._write(state)
        return key

    def search(self, user_id: str, query: str) -> list[str]:
        words = set(query.split())
        texts = [note["text"] for note in self._mine(user_id).values()]
        if self.fault == "search":
            texts += [note["text"] for _, note in self._stale[:1] if note["user"] == user_id]
        if self.fault == "correction":
            texts += [note["old"] for note in self._mine(user_id).values() if "old" in note]
        return sorted(texts, key=lambda text: -len(words & set(text.split())))[:20]

    def get(self, user_id: str, record_id: str) -> str | None:
        note = self._mine(user_id).get(record_id)
        return None if note is None else note["text"]

    def delete(self, user_id: str, record_id: str) -> None:
        state = self._read()
        if record_id in state["held"] and self.fault != "hold":
            raise PermissionError("it is held")
        derived = [key for key, note in state["notes"].items() if note["source"] == record_id]
        self._remove([record_id, *([] if self.fault == "derived" else derived)])

    def erase_user(self, user_id: str) -> tuple[bytes, bytes]:
        state = self._read()
        theirs = {key for key, note in state["notes"].items() if note["user"] == user_id}
        if self.fault == "others":
            theirs = {key for key, note in state["notes"].items() if note["user"].startswith(user_id)}
        if theirs & {*state["held"]} and self.fault != "hold erased":
            raise PermissionError("something is held")
        if self.fault == "erased":
            self._leave("log", " ".join(state["notes"][key]["text"] for key in theirs))
        self._remove(theirs, traces=False)
        state = self._read()
        state["erased"] = [*state.get("erased", []), user_id]
        self._write(state)
        (self.folder / "erased").write_text(json.dumps(state["erased"]))
        document = {"erased": hashlib.sha256(user_id.encode()).hexdigest(), "count": len(theirs)}
        return json.dumps({**document, "signature": _sign(document)}).encode(), SECRET

    def places(self) -> list[Path]:
        return [] if self.fault == "no places" else [self.folder / "empty" if self.fault == "blind" else self.folder]

    # --- what it claims beside ----------------------------------------------------------------------------------------

    def reopen(self) -> None:
        self._bring_back("restart")

    def reindex(self) -> None:
        self._bring_back("reindex")

    def _bring_back(self, fault: str) -> None:
        """With the fault: the one note that was deleted just now is there again."""
        if self.fault == fault and len(self._stale) == 1:
            state = self._read()
            state["notes"].update(self._stale)
            self._write(state)
        self._stale.clear()

    def derive(self, user_id: str, record_id: str, text: str) -> str:
        return self.add(user_id, text, source=record_id)

    def backup(self) -> str:
        copy = self.folder / f"backup-{uuid.uuid4().hex}"
        shutil.copyfile(self.file, copy)
        return copy.name

    def restore(self, backup: str) -> None:
        out, erased = self._read()["out"], self._read().get("erased", [])
        shutil.copyfile(self.folder / backup, self.file)
        self._cache = {}
        self._stale.clear()
        state = self._read()
        kept = {
            key: note
            for key, note in state["notes"].items()
            if (self.fault == "restore erased" or note["user"] not in erased)
            and (self.fault == "restore" or [note["user"], note["text"]] not in out)
        }
        self._write({**state, "notes": {} if self.fault == "restore nothing" else kept})

    def expire(self, user_id: str, text: str, seconds: float) -> str:
        return self.add(user_id, text, ends=self._now() + seconds)

    def wait(self, seconds: float) -> None:
        self.clock.write_text(str(self._now() + seconds))

    def correct(self, user_id: str, record_id: str, text: str) -> None:
        state = self._read()
        note = state["notes"][record_id]
        if self.fault == "correction":
            note["old"] = note["text"]
        note["text"] = text
        self._write(state)

    def hold(self, user_id: str, record_id: str) -> None:
        state = self._read()
        state["held"].append(record_id)
        self._write(state)

    def keep_out(self, user_id: str, record_id: str) -> None:
        state = self._read()
        state["out"].append([user_id, state["notes"][record_id]["text"]])
        self._write(state)
        self.delete(user_id, record_id)

    def embed(self, text: str) -> list[float]:
        return _vector(text)

    @staticmethod
    def verify(certificate: bytes, public_key: bytes) -> bool:
        document = json.loads(certificate)
        signature = document.pop("signature")
        return hmac.compare_digest(signature, _sign(document)) and public_key == SECRET


class Alone(Notes):
    """It starts no other process, which takes longer than all the rest."""

    processes = False
    verify: Any = None


class Forgiving(Notes):
    """Its verifier believes whatever it is shown."""

    @staticmethod
    def verify(certificate: bytes, public_key: bytes) -> bool:
        return bool(certificate and public_key)


class Modest(Notes):
    """It claims nothing but search, and does the rest badly."""

    claims: ClassVar[dict[str, tuple[str, str]]] = {"search": ("A note is removed.", "https://notes.example.com")}


class Bare:
    """It has what an adapter must have, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._notes = Notes(folder)
        self.add, self.search, self.get = self._notes.add, self._notes.search, self._notes.get
        self.delete, self.erase_user, self.places = self._notes.delete, self._notes.erase_user, self._notes.places


def _sign(document: Any) -> str:
    return hmac.new(SECRET, json.dumps(document, sort_keys=True).encode(), "sha256").hexdigest()


def _vector(text: str) -> list[float]:
    return [byte / 255 for byte in hashlib.sha512(text.encode()).digest()]


def _pack(text: str) -> bytes:
    return struct.pack("<64f", *_vector(text))


class Nameless(Notes):
    """It does not say what it calls a record."""

    def add(self, user_id: str, text: str, ends: float | None = None, source: str = "") -> Any:
        super().add(user_id, text, ends, source)


class Rowed(Notes):
    """It returns rows instead of texts."""

    def search(self, user_id: str, query: str) -> Any:
        return [(text,) for text in super().search(user_id, query)]


class Wrong(Notes):
    """It cannot search."""

    def search(self, user_id: str, query: str) -> Any:
        return 1 / 0


class Unfinished:
    """Not an adapter yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, user_id: str, text: str) -> str:
        return f"{self._folder} {user_id} {text}"
