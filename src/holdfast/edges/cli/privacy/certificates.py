"""``holdfast certificate verify | list | show``: proofs of erasures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.call import Call
from holdfast.edges.cli.options import Limit, of_store, read_bytes
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import Cell, Output, Part, Rows, bad, facts, good, list_of, minute, plural

if TYPE_CHECKING:
    from holdfast.privacy.certificates.certificate import Verdict

_ERASED: Final = "holdfast add 'Likes tea' --user alice\nholdfast erase alice --yes"
_WRITTEN: Final = f"file=$(mktemp)\n{_ERASED} --certificate $file"
_TRUSTED: Final = "key=$(mktemp)\nholdfast key public > $key\nholdfast certificate verify $file --public-key $key"
_ID: Final = """id=$(holdfast certificate list -n 1 --json | sed -n 's/^    "id": "\\(.*\\)",/\\1/p')"""

certificate = add_group(
    __name__, "certificate", "Verify, list and show the certificates of erasures.", "holdfast certificate list"
)


def _show_verdict(said: Mapping[str, Any]) -> Iterator[Part]:
    document = said["certificate"]
    if said["ok"]:
        yield good(f"Genuine: certificate {document['id']}, signed with key {document['key']['id']}.")
        yield from _show_one(document)
        return
    yield from (bad(f"NOT GENUINE: {reason}") for reason in said["reasons"])
    if said["signed"] and not said["trusted"]:
        yield "Name the key to trust with --public-key."


@command(certificate, "verify", of_store, render=_show_verdict)
def verify(call: Call, *, file: str, public_key: str | None = None) -> Any:
    """Check that not a word of a certificate was changed, and that a key that you trust has signed it.

    With --public-key no store is needed. Ends with exit code 3 if something is wrong, and says what.

    Options:
        FILE  A certificate, or its page; - for stdin.
        --public-key FILE  The public key to trust, as holdfast key public prints it; those of this store, if not given.

    Examples:
        file=$(mktemp)
        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes --certificate $file
        holdfast certificate verify $file
        rm $file

        file=$(mktemp)
        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes --certificate $file
        key=$(mktemp)
        holdfast key public > $key
        holdfast certificate verify $file --public-key $key
        rm $file $key
    """
    verdict = _verify(call, read_bytes(file), public_key)
    said = {
        "ok": verdict.ok,
        "signed": verdict.signed,
        "trusted": verdict.trusted,
        "reasons": list(verdict.reasons),
        "certificate": verdict.document,
    }
    return Output(said, code=0 if verdict else ExitCode.UNHEALTHY)


def _verify(call: Call, text: bytes, public_key: str | None) -> Verdict:
    """The verdict by a key that was given, or by those that the store has ever signed with; without a store, nobody
    says whom to trust.
    """
    from holdfast.privacy.certificates.certificate import verify_certificate  # noqa: PLC0415 - not needed for --help
    from holdfast.privacy.keys.signatures import read_public  # noqa: PLC0415

    if public_key is not None:
        return verify_certificate(text, public_key=read_public(read_bytes(public_key)))
    verdict = verify_certificate(text)
    if not verdict.signed or verdict.document is None or not call.has_keys:
        return verdict
    known = call.signing.public(verdict.document["key"]["id"])
    return verify_certificate(text, public_key=[] if known is None else [known])


def _to_row(one: Mapping[str, Any]) -> list[Cell]:
    left = sum(place["left"] for place in one["places"])
    ended = f"not complete: {left:,} left" if left else "pending" if one["pending"] else "complete"
    return [one["id"], minute(one["issued_at"]), one["subject"], ended]


@command(
    certificate,
    "list",
    of_store,
    render=list_of("id!, issued!, pseudonym!, erasure", _to_row, empty="No certificate has been issued yet."),
)
def list_certificates(call: Call, *, limit: Limit = 100) -> Any:
    """List the latest certificates, the newest last. They name nobody: whose one is, only the pseudonym says.

    Examples:
        holdfast certificate list

        holdfast certificate list --json
    """
    return call.engine.certificates.list(limit)


def _show_one(document: Mapping[str, Any]) -> Iterator[Part]:
    yield from facts(
        {
            "id": document["id"],
            "erased": f"pseudonym {document['subject']}",
            "issued": document["issued_at"],
            "ledger": f"entry {document['ledger']['no']}, {document['ledger']['hash']}",
            "engine": document["engine"],
            "key": document["key"]["id"],
        }
    )
    yield from show_places(document["places"])
    yield from (f"- {remark}" for remark in document["remarks"])


@command(certificate, "show", of_store, render=_show_one)
def show_certificate(call: Call, *, certificate_id: str, page: bool = False) -> Any:
    """Show a certificate; with --json, the certificate itself, as it is to be handed out.

    Options:
        ID  As holdfast certificate list shows it.
        --page  Print a page for a browser, which can be verified too.

    Examples:
        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes
        id=$(holdfast certificate list -n 1 --json | sed -n 's/^    "id": "\\(.*\\)",/\\1/p')
        holdfast certificate show $id

        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes
        id=$(holdfast certificate list -n 1 --json | sed -n 's/^    "id": "\\(.*\\)",/\\1/p')
        holdfast certificate show $id --page
    """
    if page and call.as_json:
        raise InvalidInputError("--page prints a page and --json the certificate; leave one of them out")
    certificates = call.engine.certificates
    return Output(None, text=certificates.page(certificate_id)) if page else certificates.get(certificate_id)


def show_places(places: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """What was found, removed and left in each place; those where nothing was are only counted."""
    shown = [place for place in places if any(place[name] for name in ("found", "removed", "left"))]
    if shown:
        rows = [
            (one["name"], one["found"], one["removed"], bad(f"{one['left']:,}") if one["left"] else Text("0"))
            for one in shown
        ]
        yield Rows("place!, found>, removed>, left>", rows)
        if others := len(places) - len(shown):
            yield f"Nothing was in {plural(others, 'other place')}."
    elif places:
        yield f"Nothing was in any of {plural(len(places), 'place')}."
