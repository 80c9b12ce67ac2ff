"""Archives of a caller's resources: a payload and a manifest that prove each other, sealed, whole or not there."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from bench.servers import s3
from hypothesis import given, settings
from hypothesis import strategies as st

from clocks import FakeClock
from domains.tenants import Tenants
from effort import times
from holdfast import Holdfast
from holdfast.core.errors import InvalidInputError, NotFoundError, ObjectDamagedError, StoreFullError
from holdfast.storage.objects import open_objects
from holdfast.storage.objects.local import LocalObjects

RESOURCES: list[dict[str, Any]] = [
    {"id": "c-1", "source_type": "context", "created_at": "2024-05-01T08:00:00Z", "text": "Ä needle in hay"},
    {"id": "t-2", "source_type": "thought", "created_at": 1_714_550_400, "tags": ["x"]},
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def objects_of(home: Path) -> list[Path]:
    return sorted(path for path in (home / "archive").rglob("*") if path.is_file() and "domains" in path.parts)


def test_an_archive_has_a_manifest_of_what_is_in_it(holdfast: Holdfast, home: Path, clock: FakeClock) -> None:
    holdfast.domains.configure("rag", {"limit": 9})
    done = holdfast.domains.archive("rag", RESOURCES, {"note": "before the move"})
    assert (done["success"], done["domain"], done["resource_count"]) == (True, "rag", 2)
    listed = json.loads(Path(done["manifest_path"]).read_bytes())
    assert (listed["archive_id"], listed["domain"], listed["note"]) == (done["archive_id"], "rag", "before the move")
    assert [one["id"] for one in listed["resources"]] == ["c-1", "t-2"]
    assert listed["total_size_bytes"] == done["total_size_bytes"]
    payload = Path(done["manifest_path"]).with_name(listed["payload"]["name"])
    assert payload.is_relative_to(home / "archive")
    assert payload.is_file()
    found = holdfast.domains.read_archive("rag", done["archive_id"])
    assert found["resources"] == RESOURCES
    manifest = found["manifest"]
    lines = [json.dumps(one, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n" for one in RESOURCES]
    sums = [hashlib.sha256(line.encode()).hexdigest() for line in lines]
    assert [(one["id"], one["sha256"]) for one in manifest["resources"]] == list(zip(("c-1", "t-2"), sums, strict=True))
    assert manifest["payload"]["sha256"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert manifest["total_size_bytes"] == done["total_size_bytes"] == len("".join(lines).encode())
    assert (manifest["created_at"], manifest["note"]) == (clock().isoformat(), "before the move")
    assert manifest["policy"] == holdfast.domains.get("rag")
    (shown,) = holdfast.domains.archives("rag")
    assert (shown["archive_id"], shown["manifest_path"]) == (done["archive_id"], done["manifest_path"])
    assert holdfast.domains.archives("memory") == []


@settings(max_examples=times(15))
@given(st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=4), min_size=1, max_size=4))
def test_whatever_is_json_comes_back_as_it_was(tenants: Tenants, given_resources: list[dict[str, Any]]) -> None:
    domains = tenants.new()
    done = domains.archive("memory", given_resources)
    assert domains.read_archive("memory", done["archive_id"])["resources"] == given_resources


def test_of_an_archive_only_the_list_can_be_read_without_its_key(holdfast: Holdfast, home: Path) -> None:
    """It names what was archived; of the contents there is neither a word nor a digest to guess them by."""
    holdfast.domains.configure("memory", {"keep_session_ids": ["s-secret"]})
    done = holdfast.domains.archive("memory", RESOURCES)
    manifest = holdfast.domains.read_archive("memory", done["archive_id"])["manifest"]
    hidden = ["needle", "s-secret", manifest["payload"]["sha256"], *(one["sha256"] for one in manifest["resources"])]
    found = objects_of(home)
    assert [path.name for path in found] == ["manifest.json", "manifest.sealed", "payload.jsonl"]
    for path in found:
        data = path.read_bytes()
        assert not any(secret.encode() in data for secret in hidden), path.name
        assert (b"c-1" in data) == (path.name == "manifest.json")


def test_where_nothing_was_ever_archived_there_is_no_archive(holdfast: Holdfast) -> None:
    assert holdfast.domains.archives("rag") == []
    with pytest.raises(NotFoundError, match="there is no archive"):
        holdfast.domains.read_archive("rag", "019bc186-de00-7000-8f87-c2b145a4840f")


def test_an_archive_is_its_tenant_s_and_its_domain_s_own(holdfast: Holdfast) -> None:
    done = holdfast.domains.archive("memory", RESOURCES)
    for domains, domain in ((holdfast.domains, "rag"), (holdfast.of_tenant("acme").domains, "memory")):
        with pytest.raises(NotFoundError):
            domains.read_archive(domain, done["archive_id"])
    for wrong in ("", "../memory", "x", 3):
        with pytest.raises(NotFoundError):
            holdfast.domains.read_archive("memory", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("which", [0, 1, 2], ids=["list", "manifest", "payload"])
@pytest.mark.parametrize("place", [0, 40, -1])
def test_an_archive_that_was_tampered_with_is_found_out(holdfast: Holdfast, home: Path, which: int, place: int) -> None:
    done = holdfast.domains.archive("memory", RESOURCES)
    path = objects_of(home)[which]
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(ObjectDamagedError):
        holdfast.domains.read_archive("memory", done["archive_id"])


@pytest.mark.parametrize("which", [0, 1, 2], ids=["manifest", "payload", "list"])
def test_the_part_of_another_archive_is_not_taken_for_its_own(holdfast: Holdfast, home: Path, which: int) -> None:
    """Both are rightly sealed and rightly placed: only the checksums tell."""
    first = holdfast.domains.archive("memory", RESOURCES)
    second = holdfast.domains.archive("memory", [{**RESOURCES[0], "text": "another"}, RESOURCES[1]])
    objects = holdfast.services.objects()
    root = f"{home / 'archive'}/"
    folders = [done["manifest_path"].removeprefix(root).rsplit("/", 1)[0] for done in (first, second)]
    name = ("manifest.sealed", "payload.jsonl", "manifest.json")[which]
    objects.put(f"{folders[0]}/{name}", objects.get(f"{folders[1]}/{name}"))
    with pytest.raises(ObjectDamagedError, match=r"another archive|SHA-256|not as it was written"):
        holdfast.domains.read_archive("memory", first["archive_id"])


def test_without_its_payload_an_archive_is_damaged_not_empty(holdfast: Holdfast, home: Path) -> None:
    done = holdfast.domains.archive("memory", RESOURCES)
    objects_of(home)[2].unlink()
    with pytest.raises(ObjectDamagedError, match="it is not there"):
        holdfast.domains.read_archive("memory", done["archive_id"])


@pytest.mark.parametrize("written", [0, 1, 2])
def test_there_is_no_list_without_what_it_lists(
    holdfast: Holdfast, home: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    put = LocalObjects.put
    left = written

    def dying(self: LocalObjects, name: str, data: bytes, **condition: Any) -> str:
        nonlocal left
        if name.startswith("archive/"):
            if left == 0:
                raise StoreFullError("the disk is full")
            left -= 1
        return put(self, name, data, **condition)

    monkeypatch.setattr(LocalObjects, "put", dying)
    with pytest.raises(StoreFullError):
        holdfast.domains.archive("memory", RESOURCES)
    assert {path.name for path in objects_of(home)} == {*("payload.jsonl", "manifest.sealed")[:written]}
    assert holdfast.domains.archives("memory") == []


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        ([], None),
        ("text", None),
        ([3], None),
        ([{"x": {1, 2}}], None),
        ([{"x": float("nan")}], None),
        ([{"x": "\ud800"}], None),
        (RESOURCES, {"label": "x"}),
        (RESOURCES, {"note": 3}),
        (RESOURCES, {"note": "x" * 1_001}),
        (RESOURCES, "note"),
    ],
)
def test_what_cannot_be_archived_is_an_error_and_leaves_nothing(
    holdfast: Holdfast, home: Path, resources: Any, options: Any
) -> None:
    with pytest.raises(InvalidInputError):
        holdfast.domains.archive("memory", resources, options)
    assert objects_of(home) == []


def test_in_a_bucket_the_manifest_s_path_is_the_url_of_an_object(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        bucket = server.new_bucket()
        monkeypatch.setenv("HOLDFAST_ARCHIVE_URL", bucket)
        with Holdfast.open(home=home) as holdfast:
            done = holdfast.domains.archive("rag", RESOURCES)
            assert [one["manifest_path"] for one in holdfast.domains.archives("rag")] == [done["manifest_path"]]
        place, _, name = done["manifest_path"].rpartition("/")
        assert place.startswith(f"{bucket.rstrip('/')}/archive/"), "the bucket that was named, and no double slash"
        listed = json.loads(open_objects(place).get(name))
    assert [one["id"] for one in listed["resources"]] == ["c-1", "t-2"]


def test_a_home_with_spaces_and_signs_in_its_path_is_no_trouble(tmp_path: Path) -> None:
    with Holdfast.open(home=tmp_path / "my home %20 ü") as holdfast:
        done = holdfast.domains.archive("rag", RESOURCES)
    assert json.loads(Path(done["manifest_path"]).read_bytes())["resource_count"] == 2
