"""Archives of a caller's resources in cold storage: a payload, and a manifest that proves it.

They are no user's, so that no erasure reaches them; they are sealed all the same, under a key of the tenant's own.
Beside the sealed manifest lies a list that anyone can read who is given its path: it names what was archived, and has
neither contents nor digests by which they could be guessed. The list is written last, after all has been read back: one
that is there tells of resources that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

from holdfast.core import errors
from holdfast.core.domains import check_domain, check_resources
from holdfast.core.errors import quote
from holdfast.core.values import is_id, iso
from holdfast.ports.coordination import begin_steps
from holdfast.ports.objects import ObjectStore
from holdfast.ports.stores import Tenant
from holdfast.results.domains import ArchiveResult, NewArchiveResult, WholeArchiveResult

_FORMAT: Final = "holdfast-domain-archive"
_VERSION: Final = 1
#: The list that can be read as it lies there, and the manifest that it is part of.
_LIST: Final = "manifest.json"
_MANIFEST: Final = "manifest.sealed"
_PAYLOAD: Final = "payload.jsonl"
_MAX_NOTE: Final = 1_000


class DomainArchives:
    """The archives of one tenant's domains."""

    def __init__(self, tenant: Tenant, objects: Callable[[], ObjectStore]) -> None:
        self._tenant = tenant
        self._objects = objects
        owner = hashlib.sha256(f"domains/{tenant.name}".encode()).hexdigest()[:32]
        self._folder = f"archive/{owner[:2]}/{owner}/domains"

    def keep(self, domain: str, resources: object, policy: Mapping[str, Any], note: str | None) -> NewArchiveResult:
        """Write an archive, read back and compared; its id and its manifest's place."""
        lines = [_line(place, resource) for place, resource in enumerate(check_resources(resources))]
        if not lines:
            raise errors.InvalidInputError("there is nothing to archive: resources is empty")
        objects, now = self._objects(), self._tenant.now()
        request = begin_steps()
        if request is None:
            archive_id = self._tenant.new_id(now)
        else:  # whoever goes on after a crash finds what was written
            (archive_id,), now = request.new_ids(1), request.began_at
        size, payload = sum(map(len, lines)), b"".join(lines)
        manifest = {
            "format": _FORMAT,
            "version": _VERSION,
            "archive_id": archive_id,
            "tenant": self._tenant.name,
            "domain": domain,
            "created_at": iso(now),
            "note": note,
            "policy": dict(policy),
            "resource_count": len(lines),
            "total_size_bytes": size,
            "payload": {"name": _PAYLOAD, "bytes": size, "sha256": _sum(payload)},
            "resources": [
                {"id": json.loads(line).get("id"), "bytes": len(line), "sha256": _sum(line)} for line in lines
            ],
        }
        folder = f"{self._folder}/{domain}/{archive_id}"
        objects.prepare()
        if request is None or f"{folder}/{_LIST}" not in objects.names(f"{folder}/"):
            contents = {_PAYLOAD: payload, _MANIFEST: _document(manifest), _LIST: _document(_open(manifest))}
            for name, data in contents.items():
                self._put(objects, f"{folder}/{name}", data, absent=request is None)
        parts = ("domain", "archive_id", "resource_count", "total_size_bytes")
        path = _place(objects, f"{folder}/{_LIST}")
        written = {"success": True, **{part: manifest[part] for part in parts}, "manifest_path": path}
        return cast("NewArchiveResult", written)

    def _put(self, objects: ObjectStore, name: str, data: bytes, *, absent: bool) -> None:
        objects.put(name, data, absent=absent)
        if objects.get(name) != data:
            objects.delete([name])
            raise errors.ObjectDamagedError(
                f"{name} in {objects.url} was not what had been written, and was removed; try again"
            )

    # --- reading ------------------------------------------------------------------------------------------------------

    def list(self, domain: str) -> list[ArchiveResult]:
        """The archives of a domain, the oldest first, without what is in them."""
        objects = self._objects()
        prefix = f"{self._folder}/{check_domain(domain)}/"
        folders = sorted(name.removesuffix(f"/{_LIST}") for name in objects.names(prefix) if name.endswith(f"/{_LIST}"))
        shown = ("archive_id", "domain", "created_at", "note", "resource_count", "total_size_bytes")
        found = []
        for folder in folders:
            manifest = self._read_manifest(objects, folder)
            place = _place(objects, f"{folder}/{_LIST}")
            found.append({**{part: manifest[part] for part in shown}, "manifest_path": place})
        return cast("list[ArchiveResult]", found)

    def read(self, domain: str, archive_id: str) -> WholeArchiveResult:
        """An archive: its manifest and its resources, each compared with what the manifest says of it."""
        if not is_id(archive_id):
            raise errors.NotFoundError(f"{quote(archive_id)} is not the id of an archive")
        objects = self._objects()
        folder = f"{self._folder}/{check_domain(domain)}/{archive_id}"
        if f"{folder}/{_LIST}" not in objects.names(f"{folder}/"):
            raise errors.NotFoundError(f"there is no archive {archive_id} of the domain {domain}")
        manifest = self._read_manifest(objects, folder)
        place = f"{objects.url}/{folder}/{_PAYLOAD}"
        data = _get(objects, f"{folder}/{_PAYLOAD}")
        return {"manifest": manifest, "resources": list(_verify(data, manifest, place))}

    def _read_manifest(self, objects: ObjectStore, folder: str) -> dict[str, Any]:
        """The sealed manifest of an archive, if the list beside it says the same."""
        name = f"{folder}/{_MANIFEST}"
        data, listed = _get(objects, name), _get(objects, f"{folder}/{_LIST}")
        try:
            manifest: dict[str, Any] = json.loads(data)
            is_ours = (manifest["format"], manifest["version"]) == (_FORMAT, _VERSION)
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise _damaged(f"{objects.url}/{name}", "it is no manifest") from problem
        if not is_ours or manifest.get("archive_id") != name.split("/")[-2]:
            raise _damaged(f"{objects.url}/{name}", "it is another archive's, or of another version")
        if listed != _document(_open(manifest)):
            raise _damaged(f"{objects.url}/{folder}/{_LIST}", "it is not as it was written")
        return manifest


def _get(objects: ObjectStore, name: str) -> bytes:
    try:
        return objects.get(name)
    except errors.ObjectMissingError as problem:
        raise _damaged(f"{objects.url}/{name}", "it is not there") from problem
    except errors.KeyMissingError as problem:  # nobody destroys an archive's key: it was changed, or the keys are gone
        raise _damaged(f"{objects.url}/{name}", str(problem)) from problem


def _open(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What of a manifest anyone may read: no digest, since a short text can be found by it, and no policy."""
    said = {name: value for name, value in manifest.items() if name != "policy"}
    payload = {name: value for name, value in said["payload"].items() if name != "sha256"}
    resources = [{"id": one["id"], "bytes": one["bytes"]} for one in said["resources"]]
    return {**said, "payload": payload, "resources": resources}


def _document(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said, ensure_ascii=False, indent=2).encode() + b"\n"


def _place(objects: ObjectStore, name: str) -> str:
    """Where an object lies, to be used as it is: the path of a file, or the URL of an object in a bucket."""
    url = f"{objects.url.rstrip('/')}/{name}"
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


def _verify(data: bytes, manifest: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    if _sum(data) != manifest["payload"]["sha256"]:
        raise _damaged(place, "its SHA-256 is not the manifest's")
    lines = data.splitlines(keepends=True)
    if len(lines) != manifest["resource_count"] or len(lines) != len(manifest["resources"]):
        raise _damaged(place, f"it has {len(lines):,} resources, the manifest {manifest['resource_count']:,}")
    for number, (line, said) in enumerate(zip(lines, manifest["resources"], strict=True)):
        if _sum(line) != said["sha256"]:
            raise _damaged(place, f"resource {number} has another SHA-256 than in the manifest")
        yield json.loads(line)


def _damaged(place: str, why: str) -> errors.ObjectDamagedError:
    return errors.ObjectDamagedError(f"{place} is damaged: {why}; restore it from a backup")


def _line(place: int, resource: Mapping[str, Any]) -> bytes:
    """A resource as one line of JSON, in which moments are ISO 8601."""
    try:
        text = json.dumps(
            dict(resource), ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, default=_plain
        )
        return text.encode() + b"\n"
    except (ValueError, TypeError, RecursionError) as problem:
        raise errors.InvalidInputError(f"resource {place} is not JSON: {problem}") from problem


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{quote(value)} cannot be written")


def check_note(options: object) -> str | None:
    """The note among the options of an archive; ``InvalidInputError`` for any other option."""
    if options is None:
        return None
    if not isinstance(options, Mapping) or set(options) - {"note"}:
        raise errors.InvalidInputError(f"options of an archive can have a note, and nothing else; not {quote(options)}")
    note = options.get("note")
    if note is not None and (not isinstance(note, str) or len(note) > _MAX_NOTE):
        raise errors.InvalidInputError(f"note must be a text of at most {_MAX_NOTE:,} characters, not {quote(note)}")
    return note


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
