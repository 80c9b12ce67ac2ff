"""Certificates of erasures: they say what was done under a pseudonym, and whoever changes a word of one is found out."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import every, soak, times
from holdfast import Holdfast
from holdfast.core.errors import InvalidInputError, NotFoundError, ObjectDamagedError
from holdfast.core.values import iso
from holdfast.installation import SOFTWARE
from holdfast.privacy.certificates import (
    Certificates,
    Engines,
    read_certificate,
    readable_page,
    remarks_on,
    sign,
    signed_bytes,
    verify_certificate,
)
from holdfast.privacy.erasure import PlaceCount
from holdfast.privacy.keys.keyring import Keyring
from holdfast.privacy.keys.signatures import SigningKey, SigningKeys, public_id, public_pem
from holdfast.privacy.ledger import Erased
from holdfast.results import CertificateResult
from holdfast.storage.objects import open_objects
from homes import ENGINES

NOW = 1_768_478_400_000_000
ALIAS = "0123456789abcdef" * 2
ENTRY = Erased(7, ALIAS, NOW - 5, "0" * 64, "c" * 64)
AUDITED = {"chain": "e" * 32, "seq": 12, "hash": "d" * 64}
BLANK = b" \t\r\n"


PLACES = [PlaceCount("records", 1_234, 1_234, 0), PlaceCount("cold objects", 2, 2, 0), PlaceCount("data key", 1, 1, 0)]


@pytest.fixture
def keys(tmp_path: Path) -> SigningKeys:
    objects = open_objects(tmp_path.as_uri())
    return SigningKeys(objects, Keyring(objects, "", tmp_path / "keys" / "master.key"))


@pytest.fixture
def certificates(tmp_path: Path, keys: SigningKeys) -> Certificates:
    return shelf(tmp_path, keys)


def shelf(folder: Path, keys: SigningKeys, *, engine: str = "sqlite") -> Certificates:
    numbers = count(1)
    return Certificates(
        open_objects(folder.as_uri()),
        keys,
        Engines(engine, has_short_term_server=engine != "sqlite"),
        lambda alias: AUDITED if alias == ALIAS else None,
        lambda: NOW,
        lambda: f"019bc1a0-0000-7000-8000-{next(numbers):012}",
    )


@cache
def key_of(number: int) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = bytes([number]) * 32
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return SigningKey(public_id(public), secret, public)


def unsigned(**changes: Any) -> dict[str, Any]:
    return {
        "holdfast_certificate": 1,
        "id": "019bc1a0-0000-7000-8000-000000000001",
        "issued_at": iso(NOW),
        "subject": ALIAS,
        "ledger": {"no": 7, "hash": "c" * 64, "begun_at": iso(NOW - 5)},
        "engine": "sqlite",
        "places": [place._asdict() for place in PLACES],
        "pending": False,
        "audit": AUDITED,
        "remarks": remarks_on(Engines("sqlite", has_short_term_server=False), pending=False),
        "software": SOFTWARE,
        **changes,
    }


SIGNED = sign(unsigned(), key_of(1))
TRUSTED = key_of(1).public
FORMS = {
    "compact": json.dumps(SIGNED, separators=(",", ":")).encode(),
    "indented": json.dumps(SIGNED, indent=2).encode(),
    "page": readable_page(SIGNED).encode(),
}


# --- what a certificate says -------------------------------------------------------------------------------------------


def test_a_certificate_says_what_was_done_and_can_be_verified(certificates: Certificates, keys: SigningKeys) -> None:
    issued = certificates.issue(ENTRY, PLACES)

    assert issued["subject"] == ALIAS
    assert issued["ledger"] == {"no": 7, "hash": "c" * 64, "begun_at": iso(NOW - 5)}
    assert issued["places"][0] == {"name": "records", "found": 1234, "removed": 1234, "left": 0}
    assert issued["audit"] == AUDITED
    assert (issued["engine"], issued["issued_at"], issued["pending"]) == ("sqlite", iso(NOW), False)
    assert issued["key"]["id"] == keys.current_id()
    assert certificates.verify(issued)
    assert certificates.verify(issued["id"])
    assert certificates.verify(certificates.page(issued["id"]))
    assert certificates.get(issued["id"]) == issued
    assert certificates.list() == [issued]


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize("pending", [False, True])
def test_a_certificate_does_not_claim_more_than_is_true(
    tmp_path: Path, keys: SigningKeys, engine: str, *, pending: bool
) -> None:
    issued = shelf(tmp_path, keys, engine=engine).issue(ENTRY, PLACES, pending=pending)
    said = " ".join(issued["remarks"])

    assert ("vacuum" in said) is (engine == "postgresql")
    assert ("was truncated" in said) is (engine == "sqlite" and not pending)
    assert said.startswith("Pending") is pending
    assert ("not complete yet" in readable_page(issued)) is pending
    assert "says nothing of what other programs" in said


def test_a_place_where_something_is_left_is_said_on_top_of_the_page() -> None:
    left = [place._asdict() for place in (*PLACES, PlaceCount("history", 5, 3, 2))]

    assert "not complete: 2 were still there" in readable_page(sign(unsigned(places=left), key_of(1)))


def test_the_page_needs_nothing_from_elsewhere_and_cannot_be_written_into() -> None:
    evil = '</pre><script>alert(1)</script><img src="https://example.com/x"> & "\''
    places = [{"name": evil, "found": 1, "removed": 1, "left": 0}]
    signed = sign(unsigned(places=places, software=evil, remarks=[evil]), key_of(1))
    page = readable_page(signed)

    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"<[^>]+(src|href)=", page)
    assert read_certificate(page) == signed
    assert verify_certificate(page, public_key=TRUSTED)


def test_the_latest_certificates_are_listed_in_order(certificates: Certificates) -> None:
    issued = [certificates.issue(ENTRY, PLACES) for _ in range(4)]

    assert certificates.list(3) == issued[1:]
    with pytest.raises(NotFoundError):
        certificates.get("019bc1a0-0000-7000-8000-00000000ffff")
    with pytest.raises(NotFoundError, match="certificate list"):
        certificates.get("../keys/master.key")


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "alice"},
        {"holdfast_certificate": 2},
        {"places": [{"name": "records", "found": -1, "removed": 0, "left": 0}]},
        {"places": [{"name": "records", "found": 1.0, "removed": 0, "left": 0}]},
        {"places": [{"name": "records", "found": True, "removed": 0, "left": 0}]},
        {"places": [{"name": "records", "found": 1}]},
        {"remarks": ["\ud800"]},
        {"pending": "no"},
        {"user": "alice"},
        {"issued_at": "yesterday"},
    ],
    ids=str,
)
def test_what_is_no_certificate_is_not_signed(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="nothing was signed"):
        sign(unsigned(**changes), key_of(1))


@pytest.mark.parametrize("engine_name", ENGINES)
def test_erasing_a_user_is_certified_on_every_engine(holdfast: Holdfast, engine_name: str) -> None:
    for user in ("alice", "bob"):
        holdfast.manager(user, "travel_agent").add_many(["Likes tea", "Lives in Paris"], "long_term")
    issued = [holdfast.erase_user(user).certificate for user in ("alice", "bob")]

    assert holdfast.certificates.list() == issued
    for document, entry in zip(issued, holdfast.audit.tail(2), strict=True):
        assert document is not None
        assert document["audit"] is not None
        assert holdfast.certificates.verify(document)
        assert document["engine"] == {"sqlite": "sqlite", "postgres": "postgresql"}[engine_name]
        assert (entry["action"], entry["item"]) == ("erased", document["subject"])
        assert (entry["chain"], entry["seq"]) == (document["audit"]["chain"], document["audit"]["seq"])
        assert {"name": "memories", "found": 2, "removed": 2, "left": 0} in document["places"]
    assert holdfast.audit.verify()


def erase_and_bring_back(home: Path) -> CertificateResult | None:
    """Erase someone, and put a copy of the store from before in its place; the certificate."""
    with Holdfast.open(home=home) as engine:
        engine.manager("alice", "travel_agent").add("Likes tea", "long_term")
    shutil.copy(home / "holdfast.db", home / "copy")
    with Holdfast.open(home=home) as engine:
        issued = engine.erase_user("alice").certificate
    shutil.copy(home / "copy", home / "holdfast.db")
    for name in ("holdfast.db-wal", "holdfast.db-shm"):
        (home / name).unlink(missing_ok=True)
    return issued


def test_a_copy_from_before_an_erasure_is_erased_again_and_that_is_certified_too(home: Path) -> None:
    first = erase_and_bring_back(home)

    with Holdfast.open(home=home) as engine:
        listed = engine.certificates.list()
        assert listed[0] == first
        assert [one["subject"] for one in listed] == [listed[0]["subject"]] * 2
        assert listed[0]["ledger"] == listed[1]["ledger"]
        assert all(engine.certificates.verify(one) for one in listed)


def test_a_store_opens_and_erases_what_it_must_even_if_nothing_can_be_signed(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    erase_and_bring_back(home)
    (home / "keys" / "master.key").unlink()

    with Holdfast.open(home=home) as engine:
        assert engine.manager("alice", "travel_agent").retrieve("tea") == []
        assert len(engine.certificates.list()) == 1
    assert "no certificate could be issued" in caplog.text


# --- whom to believe ---------------------------------------------------------------------------------------------------


def test_a_good_signature_by_a_stranger_is_told_from_a_wrong_one() -> None:
    forged = sign(SIGNED, key_of(2))
    stranger = verify_certificate(forged, public_key=TRUSTED)
    wrong = verify_certificate({**SIGNED, "pending": True}, public_key=TRUSTED)

    assert not stranger
    assert (stranger.signed, stranger.trusted) == (True, False)
    assert f"the signature is good, but key {key_of(2).id} is not one that you trust" in stranger.reasons
    assert not wrong
    assert (wrong.signed, wrong.trusted) == (False, False)
    assert "the signature is wrong" in wrong.reasons[0]


def test_without_a_key_to_trust_a_certificate_is_whole_but_not_to_be_relied_on() -> None:
    verdict = verify_certificate(SIGNED)

    assert not verdict
    assert verdict.signed
    assert "no public key was given" in verdict.reasons[0]
    assert verify_certificate(SIGNED, public_key=[key_of(2).public, TRUSTED]).ok


def test_a_strangers_key_under_a_trusted_name_is_wrong() -> None:
    forged = sign(SIGNED, key_of(2))
    forged["key"]["id"] = key_of(1).id

    assert "do not belong together" in verify_certificate(forged, public_key=TRUSTED).reasons[0]


def test_certificates_outlive_a_rotation_and_the_loss_of_the_master_key(
    tmp_path: Path, certificates: Certificates, keys: SigningKeys
) -> None:
    issued = certificates.issue(ENTRY, PLACES)
    keys.rotate(now=NOW)
    (tmp_path / "keys" / "master.key").unlink()

    assert certificates.verify(issued["id"])


def test_a_store_does_not_trust_the_key_of_another(tmp_path: Path, certificates: Certificates) -> None:
    verdict = certificates.verify(SIGNED)

    assert not verdict
    assert "not one that you trust" in verdict.reasons[0]
    assert certificates.verify(SIGNED, public_key=TRUSTED)


def test_a_certificate_is_verified_without_holdfast(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(public_pem(TRUSTED))
    (tmp_path / "signature").write_bytes(base64.b64decode(SIGNED["signature"]))
    bare = {name: value for name, value in SIGNED.items() if name != "signature"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    (tmp_path / "text").write_text(text, encoding="utf-8")
    assert text.encode() == signed_bytes(SIGNED)

    key = load_pem_public_key((tmp_path / "key.pem").read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    key.verify((tmp_path / "signature").read_bytes(), (tmp_path / "text").read_bytes())

    if openssl := shutil.which("openssl"):  # as docs/howto/erase.md says
        command = [openssl, "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-in", "text"]
        done = subprocess.run(
            [*command, "-sigfile", "signature"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert "Signature Verified Successfully" in done.stdout, done.stderr


# --- tampering ---------------------------------------------------------------------------------------------------------


def test_white_space_and_the_order_of_fields_are_nobodys_business() -> None:
    for text in FORMS.values():
        assert verify_certificate(text, public_key=TRUSTED)
    assert verify_certificate(json.dumps(SIGNED, sort_keys=True, indent="\t"), public_key=TRUSTED)
    assert verify_certificate(FORMS["indented"].replace(b"\n", b"\r\n"), public_key=TRUSTED)
    assert verify_certificate(FORMS["page"].replace(b"\n", b"\r\n"), public_key=TRUSTED)


def places_of(text: bytes) -> Iterator[int]:
    return (place for place, byte in enumerate(text) if byte not in BLANK)


@soak
@pytest.mark.parametrize("form", ["compact", "page"])
def test_a_bit_flipped_anywhere_is_found(form: str) -> None:
    text = FORMS[form]
    for place in list(places_of(text))[:: every(16)]:
        changed = text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
        assert not verify_certificate(changed, public_key=TRUSTED), (place, text[place - 20 : place + 20])


@settings(max_examples=times(60))
@given(form=st.sampled_from(sorted(FORMS)), data=st.data())
def test_any_byte_changed_removed_or_added_is_found(form: str, data: st.DataObject) -> None:
    text = FORMS[form]
    place = data.draw(st.sampled_from(list(places_of(text))))
    byte = bytes([data.draw(st.integers(0, 255).filter(lambda drawn: drawn != text[place] and drawn not in BLANK))])
    changed = data.draw(
        st.sampled_from(
            [
                text[:place] + byte + text[place + 1 :],
                text[:place] + b" " + text[place + 1 :],
                text[:place] + text[place + 1 :],
                text[:place] + byte + text[place:],
                text[:place],
            ]
        )
    )

    assert not verify_certificate(changed, public_key=TRUSTED)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
    st.sampled_from(sorted(SIGNED)),
)
def test_any_field_replaced_by_anything_is_found(value: object, name: str) -> None:
    before = dict(SIGNED)[name]
    if value != before or type(value) is not type(before):
        assert not verify_certificate({**SIGNED, name: value}, public_key=TRUSTED)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b"[" * 100_000,
        b"<html></html>",
        b"<pre id=\"certificate\">{}</pre>",
        b'{"holdfast_certificate":1}',
        b'{"holdfast_certificate":' + b"9" * 5_000 + b"}",
        b'{"holdfast_certificate":1,"x":NaN}',
        FORMS["compact"].replace(b'"pending":false', b'"pending":true,"pending":false'),
        FORMS["compact"].replace(b'"no":7', b'"no":7.0'),
        FORMS["compact"].replace(b'"no":7', b'"no":07'),
        FORMS["compact"].replace(b"sqlite", b"sq\\u006cite"),
        FORMS["page"] + FORMS["page"],
        "\ud800",
    ],
    ids=lambda text: str(text[:40]),
)  # fmt: skip
def test_nonsense_is_no_certificate(text: bytes | str) -> None:
    verdict = verify_certificate(text, public_key=TRUSTED)

    assert not verdict
    assert verdict.reasons
    assert not verdict.signed


def test_a_page_that_tells_another_story_than_its_certificate_is_found() -> None:
    page = FORMS["page"].decode().replace('<td class="n">1,234</td>', '<td class="n">0</td>', 1)
    verdict = verify_certificate(page, public_key=TRUSTED)

    assert not verdict
    assert (verdict.signed, verdict.trusted) == (True, True)
    assert "believe the certificate alone" in verdict.reasons[0]


def test_a_kept_certificate_that_was_changed_is_found(tmp_path: Path, certificates: Certificates) -> None:
    issued = certificates.issue(ENTRY, PLACES)
    path = tmp_path / "certificates" / f"{issued['id']}.json"
    path.write_bytes(path.read_bytes().replace(b"1234", b"1235"))

    assert not certificates.verify(issued["id"])
    path.write_bytes(b"nonsense")
    assert not certificates.verify(issued["id"])
    with pytest.raises(ObjectDamagedError, match="damaged"):
        certificates.get(issued["id"])
