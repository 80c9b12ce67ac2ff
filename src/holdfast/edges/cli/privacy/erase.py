"""``holdfast erase``: everything of a person goes, for good, and a certificate says so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.errors import InvalidInputError
from holdfast.core.records import Subject
from holdfast.edges.cli.app import app, command
from holdfast.edges.cli.call import Call
from holdfast.edges.cli.options import DryRun, Yes
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import Output, Part, Rows, bad, bold, good, indent, warn
from holdfast.edges.cli.privacy.certificates import show_places

if TYPE_CHECKING:
    from holdfast.privacy.erasure import Erasure

_ADD: Final = "holdfast add 'Likes tea' --user alice"
_PAGES: Final = (".html", ".htm")


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
        kept = f"{found['memories_and_messages']:,} memories and messages"
        refusal = f"erasing {user!r} removes all that is kept of them ({kept}), for good; look with --dry-run first"
        call.ask("It cannot be brought back. Erase it?", _show_found(found), otherwise=refusal)
    with call.progress("erasing, and looking again in every place", None):
        erasure = call.engine.erase_user(user)
    if certificate is not None and erasure.certificate:
        _write(certificate, erasure.certificate)
    done = _to_dict(user, erasure, certificate)
    return Output(done, _show_done, code=ExitCode.TRY_AGAIN if erasure.pending else 0)


def _look(call: Call, user: str) -> dict[str, Any]:
    """What there is of a user, more or less: others may be writing. ``HeldError`` while a hold keeps it."""
    from holdfast.core.records import DURABLE  # noqa: PLC0415 - not needed for --help

    engine = call.engine
    subject = Subject(engine.tenant, user)
    engine.eraser.check(subject)  # what would be refused is not asked about
    kinds = {kind.value: engine.quotas.get(kind, user).memories for kind in DURABLE}
    total = engine.services.reader.size(subject)
    return {"user_id": user, "memories": kinds, "memories_and_messages": max(total, sum(kinds.values()))}


def _to_dict(user: str, erasure: Erasure, file: Path | None) -> dict[str, Any]:
    issued = erasure.certificate or {}
    return {
        "user_id": user,
        "pseudonym": erasure.alias,
        "pending": erasure.pending,
        "waiting_for": list(erasure.waiting_for),
        "memories": dict(erasure.kinds),
        "places": [place._asdict() for place in erasure.places],
        "certificate": issued.get("id"),
        "file": str(file) if file is not None and issued else None,
    }


def _write(file: Path, issued: Mapping[str, Any]) -> None:
    from holdfast.privacy.certificates.certificate import readable_page  # noqa: PLC0415 - not needed for --help

    text = readable_page(issued) if file.suffix.lower() in _PAGES else json.dumps(issued, indent=2) + "\n"
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


def _show_done(done: Mapping[str, Any]) -> Iterator[Part]:
    who = done["user_id"]
    found = any(place[name] for place in done["places"] for name in ("found", "removed", "left"))
    if done["pseudonym"] is None and not done["pending"] and not found:
        yield f"Nothing is kept of {who} (any more); nothing to certify."
        return
    yield from show_places(done["places"])
    if done["pending"]:
        yield warn(f"Nobody can find or read anything of {who} any more, but not all of it is gone yet:")
        yield from (indent(reason) for reason in done["waiting_for"])
        yield "The next sweep goes on with it, and so does this command. The certificate comes then."
    elif done["pseudonym"] is None:
        yield f"Nothing was ever kept of {who} under a pseudonym; nothing to certify."
    else:
        yield good(f"Erased {who}, pseudonym {done['pseudonym']}.")
        where = f", written to {done['file']}" if done["file"] else ""
        if done["certificate"] is None:
            yield bad("No certificate could be issued; see the warning above.")
        else:
            yield f"Certificate {done['certificate']}{where}."
