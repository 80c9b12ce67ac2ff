"""``holdfast export | erase | certificate verify | list | show``: what is held on a person, its end, and the proof."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.core.records import DURABLE, Subject
from holdfast.edges.cli.app import Call, add_group, app, command
from holdfast.edges.cli.options import STDIO, DryRun, Limit, Yes, of_store, read_bytes
from holdfast.edges.cli.output import (
    Cell,
    ExitCode,
    Output,
    Part,
    Rows,
    bad,
    bold,
    facts,
    good,
    indent,
    minute,
    plural,
    table,
    warn,
)

if TYPE_CHECKING:
    from holdfast.privacy.certificates import Verdict
    from holdfast.privacy.erasure import Erasure
    from holdfast.results.lifecycle import CertificateResult

#: What a file's name is left with of a user's id.
_UNSAFE: Final = re.compile(r"[^\w.@+-]+")
_COUNTED: Final = ("conversations", "facts", "collections", "quotas", "rules", "holds", "audit")
_CHANGES: Final = ("found", "removed", "left")


def _show_exported(done: Mapping[str, Any]) -> Iterator[Part]:
    counts = {**done["memories"], **{name: done[name] for name in _COUNTED if name in done}}
    yield Rows("held!, how many>", [(name.replace("_", " "), count) for name, count in counts.items() if count])
    if done["incomplete"]:
        memories = plural(done["incomplete"], "memory")
        yield warn(f"Only a part of {memories} could be read; each has a note that says why.")
    yield f"Written to {done['file']}, as of {minute(done['export_date'])}."


@command(app, "export", render=_show_exported)
def export(call: Call, *, user: str, to: str | None = None) -> Any:
    """Export everything that is held on a user: in every state, of every kind, from every place.

    The ZIP has a page to read (index.html) and files for programs, with a schema. With --json and without --to, all of
    it is one JSON document on stdout, which is put together in memory.

    Options:
        USER  Whose data.
        --to FILE  The ZIP to write, or - for stdout; export-USER.zip here, if not given.

    Examples:
        holdfast add "Likes tea" --user alice
        holdfast export alice --to alice.zip

        holdfast add "Likes tea" --user alice
        holdfast export alice --json

        holdfast add "Likes tea" --user alice
        holdfast export alice --to - > alice.zip
    """
    if to == STDIO and call.as_json:
        raise InvalidInputError("--to - writes the ZIP to stdout, where --json would write too; leave one of them out")
    if to == STDIO and sys.stdout.isatty():
        raise InvalidInputError("a ZIP is nothing for a terminal; write it to a file, or into a pipe: --to - > FILE")
    total = call.engine.services.exports.size(call.tenant, user) if call.is_watched else 0
    target: Any = sys.stdout.buffer if to == STDIO else to or f"export-{_UNSAFE.sub('_', user)}.zip"
    with call.progress("exporting", total) as advance:
        if call.as_json and to is None:
            return call.engine.export_user(user, progress=advance)
        done = call.engine.export_user(user, target, progress=advance)
    return Output(done, text="" if to == STDIO else None)


@command(app, "erase")
def erase(call: Call, *, user: str, yes: Yes = False, dry_run: DryRun = False, certificate: Path | None = None) -> Any:
    """Erase a user for good: every memory of every kind, from every place, past the recycle bin.

    A signed certificate says what was found, removed and left. Refused while a hold stands on anything of theirs. Where
    something is away just now it is pending, with exit code 75: the next sweep, or the same command, goes on with it.

    Options:
        USER  Who is to be forgotten.
        --certificate FILE  Write the certificate there; as a page, if it ends in .html.

    Examples:
        holdfast add 'Likes tea' --user alice
        holdfast erase alice --dry-run

        holdfast add 'Likes tea' --user alice
        file=$(mktemp)
        holdfast erase alice --yes --certificate $file
        rm $file

        holdfast add 'Likes tea' --user alice
        holdfast erase alice --yes --json
    """
    from holdfast.privacy.export.export import check_target  # noqa: PLC0415 - not needed for --help

    if certificate is not None:
        check_target(certificate, "certificate.json")  # a place that cannot be written is refused before anything goes
    if dry_run or not yes:
        found = _look(call, user)
        if dry_run:
            return Output(found, _show_found)
        kept = f"memories and messages: {found['memories_and_messages']:,}"
        refusal = f"erasing {user!r} removes all that is kept of them ({kept}), for good; look with --dry-run first"
        call.ask("It cannot be brought back. Erase it?", _show_found(found), otherwise=refusal)
    with call.progress("erasing, and looking again in every place", None):
        erasure = call.engine.erase_user(user)
    if certificate is not None and erasure.certificate:
        _write(certificate, erasure.certificate)
    done = _to_dict(user, erasure, certificate)
    return Output(done, _show_erased, code=ExitCode.TRY_AGAIN if erasure.pending else 0)


def _look(call: Call, user: str) -> dict[str, Any]:
    """What there is of a user, more or less: others may be writing. ``HeldError`` while a hold keeps it."""
    engine = call.engine
    subject = Subject(engine.tenant, user)
    engine.eraser.check(subject)  # what would be refused is not asked about
    kinds = {kind.value: engine.quotas.get(kind, user).memories for kind in DURABLE}
    total = engine.services.reader.size(subject)
    return {"user_id": user, "memories": kinds, "memories_and_messages": max(total, sum(kinds.values()))}


def _to_dict(user: str, erasure: Erasure, file: Path | None) -> dict[str, Any]:
    issued = erasure.certificate
    return {
        "user_id": user,
        "pseudonym": erasure.alias,
        "pending": erasure.pending,
        "waiting_for": list(erasure.waiting_for),
        "memories": dict(erasure.kinds),
        "places": [place._asdict() for place in erasure.places],
        "certificate": None if issued is None else issued["id"],
        "file": str(file) if file is not None and issued else None,
    }


def _write(file: Path, issued: CertificateResult) -> None:
    from holdfast.privacy.certificates import readable_page  # noqa: PLC0415 - not needed for --help

    text = readable_page(issued) if file.suffix.lower() in (".html", ".htm") else json.dumps(issued, indent=2) + "\n"
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InvalidInputError(
            f"all was erased, but the certificate cannot be written to {file}: {problem.strerror}; it is kept: "
            f"holdfast certificate show {issued['id']} --json"
        ) from None


def _show_found(found: Mapping[str, Any]) -> Iterator[Part]:
    if not found["memories_and_messages"]:
        yield f"Nothing is kept of {found['user_id']}."
        return
    yield f"Of {found['user_id']} would go:"
    total = (bold("in all, with messages, the bin and the archive"), bold(found["memories_and_messages"]))
    rows = [(kind, count) for kind, count in found["memories"].items() if count]
    yield Rows("memories!, how many>", [*rows, total])


def _show_erased(done: Mapping[str, Any]) -> Iterator[Part]:
    who = done["user_id"]
    found = any(place[name] for place in done["places"] for name in _CHANGES)
    if done["pseudonym"] is None and not done["pending"] and not found:
        yield f"Nothing is kept of {who} (any more); nothing to certify."
        return
    yield from _show_places(done["places"])
    if done["pending"]:
        yield warn(f"Nobody can find or read anything of {who} any more, but not all of it is gone yet:")
        yield from (indent(reason) for reason in done["waiting_for"])
        yield "The next sweep goes on with it, and so does this command. The certificate comes then."
    elif done["pseudonym"] is None:
        yield f"Nothing was ever kept of {who} under a pseudonym; nothing to certify."
    else:
        yield good(f"Erased {who}, pseudonym {done['pseudonym']}.")
        show = f"; hand it out with: holdfast certificate show {done['certificate']} --json"
        where = f", written to {done['file']}." if done["file"] else show
        if done["certificate"] is None:
            yield bad("No certificate could be issued; see the warning above.")
        else:
            yield f"Certificate {done['certificate']}{where}"


certificate = add_group(
    __name__,
    "certificate",
    "Verify, list and show the certificates of erasures.\n\nExamples:\n    holdfast certificate list",
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
    said = {name: getattr(verdict, name) for name in ("ok", "signed", "trusted", "reasons")}
    said["certificate"] = verdict.document
    return Output(said, code=0 if verdict else ExitCode.UNHEALTHY)


def _verify(call: Call, text: bytes, public_key: str | None) -> Verdict:
    """The verdict by a key that was given, or by those that the store has ever signed with; without a store, nobody
    says whom to trust.
    """
    from holdfast.privacy.certificates import verify_certificate  # noqa: PLC0415 - not needed for --help
    from holdfast.privacy.keys.signatures import read_public  # noqa: PLC0415

    if public_key is not None:
        return verify_certificate(text, public_key=read_public(read_bytes(public_key)))
    verdict = verify_certificate(text)
    if not verdict.signed or verdict.document is None or not call.has_keys:
        return verdict
    known = call.signing.public(verdict.document["key"]["id"])
    return verify_certificate(text, public_key=[] if known is None else [known])


@table("id!, issued!, pseudonym!, erasure", empty="No certificate has been issued yet.")
def _show_certificates(one: Mapping[str, Any]) -> list[Cell]:
    left = sum(place["left"] for place in one["places"])
    ended = f"not complete: {left:,} left" if left else "pending" if one["pending"] else "complete"
    return [one["id"], minute(one["issued_at"]), one["subject"], ended]


@command(certificate, "list", of_store, render=_show_certificates)
def list_certificates(call: Call, *, limit: Limit = 100) -> Any:
    """List the latest certificates, the newest last. They name nobody: whose one is, only the pseudonym says.

    Examples:
        holdfast certificate list

        holdfast certificate list --json
    """
    return call.engine.certificates.list(limit)


def _show_one(document: Mapping[str, Any]) -> Iterator[Part]:
    yield from facts(
        id=document["id"],
        erased=f"pseudonym {document['subject']}",
        issued=document["issued_at"],
        ledger=f"entry {document['ledger']['no']}, {document['ledger']['hash']}",
        engine=document["engine"],
        key=document["key"]["id"],
    )
    yield from _show_places(document["places"])
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


def _show_places(places: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """What was found, removed and left in each place; those where nothing was are only counted."""
    shown = [place for place in places if any(place[name] for name in _CHANGES)]
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
