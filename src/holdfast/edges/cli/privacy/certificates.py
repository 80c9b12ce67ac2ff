"""``holdfast certificate verify | list | show``: proofs of erasures."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import Home, Json, Url
from holdfast.edges.cli.outcomes import ExitCode
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import counted, minute, show_facts, show_rows
from holdfast.edges.cli.state import open_state
from holdfast.edges.cli.store import open_engine

if TYPE_CHECKING:
    from holdfast.privacy.certificates.certificate import Verdict

_STDIN: Final = "-"
_ERASED: Final = "holdfast add 'Likes tea' --user alice\nholdfast erase alice --yes"
_WRITTEN: Final = f"file=$(mktemp)\n{_ERASED} --certificate $file"
_TRUSTED: Final = "key=$(mktemp)\nholdfast key public > $key\nholdfast certificate verify $file --public-key $key"
_ID: Final = """id=$(holdfast certificate list -n 1 --json | sed -n 's/^    "id": "\\(.*\\)",/\\1/p')"""

certificate = add_group(
    "certificate",
    about="Verify, list and show the certificates of erasures.",
    examples=["holdfast certificate list"],
)


@command(
    certificate,
    "verify",
    examples=(
        f"{_WRITTEN}\nholdfast certificate verify $file\nrm $file",
        f"{_WRITTEN}\n{_TRUSTED}\nrm $file $key",
    ),
)
def verify(
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A certificate, or its page; - for stdin.")],
    public_key: Annotated[
        Path | None,
        typer.Option(
            "--public-key",
            metavar="FILE",
            help="The public key to trust, as holdfast key public prints it; those of this store, if not given.",
        ),
    ] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Check that not a word of a certificate was changed, and that a key that you trust has signed it.

    With --public-key no store is needed. Ends with exit code 3 if something is wrong, and says what.
    """
    text = _read(file)
    verdict = _against_file(text, public_key) if public_key is not None else _against_store(text, home)
    said = {
        "ok": verdict.ok,
        "signed": verdict.signed,
        "trusted": verdict.trusted,
        "reasons": list(verdict.reasons),
        "certificate": verdict.document,
    }
    show(said, _show_verdict, as_json=as_json)
    if not verdict:
        raise typer.Exit(ExitCode.UNHEALTHY)


@command(certificate, "list", examples=("holdfast certificate list", "holdfast certificate list --json"))
def list_certificates(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="How many at most.")] = 100,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List the latest certificates, the newest last. They name nobody: whose one is, only the pseudonym says."""
    with open_engine(home, url, quiet=as_json) as engine:
        found = engine.certificates.list(limit)
    show(found, _show_list, as_json=as_json)


@command(
    certificate,
    "show",
    examples=(
        f"{_ERASED}\n{_ID}\nholdfast certificate show $id",
        f"{_ERASED}\n{_ID}\nholdfast certificate show $id --page",
    ),
)
def show_certificate(
    *,
    certificate_id: Annotated[str, typer.Argument(metavar="ID", help="As holdfast certificate list shows it.")],
    page: Annotated[
        bool, typer.Option("--page", help="Print a page for a browser, which can be verified too.")
    ] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show a certificate; with --json, the certificate itself, as it is to be handed out."""
    if page and as_json:
        raise InvalidInputError("--page prints a page and --json the certificate; leave one of them out")
    with open_engine(home, url, quiet=as_json) as engine:
        if page:
            typer.echo(engine.certificates.page(certificate_id), nl=False)
            return
        found = engine.certificates.get(certificate_id)
    show(found, _show_one, as_json=as_json)


def _read(file: str) -> bytes:
    if file == _STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as problem:
        raise InvalidInputError(f"cannot read {file}: {problem.strerror}") from None


def _against_file(text: bytes, public_key: Path) -> Verdict:
    from holdfast.privacy.certificates.certificate import verify_certificate  # noqa: PLC0415 - not needed for --help
    from holdfast.privacy.keys.signing import read_public  # noqa: PLC0415

    return verify_certificate(text, public_key=read_public(_read(str(public_key))))


def _against_store(text: bytes, home: Path | None) -> Verdict:
    """The verdict by the keys that the store has ever signed with; without a store, nobody says whom to trust."""
    from holdfast.privacy.certificates.certificate import verify_certificate  # noqa: PLC0415 - not needed for --help

    state = open_state(home)
    verdict = verify_certificate(text)
    if not verdict.signed or verdict.document is None or next(state.objects.names("keys/"), None) is None:
        return verdict
    known = state.signing.public(verdict.document["key"]["id"])
    return verify_certificate(text, public_key=[] if known is None else [known])


def _show_verdict(console: Console, said: Mapping[str, Any]) -> None:
    document = said["certificate"]
    if said["ok"]:
        console.print(
            f"Genuine: certificate {document['id']}, signed with key {document['key']['id']}.",
            style="green",
            soft_wrap=True,
        )
        _show_one(console, document)
        return
    for reason in said["reasons"]:
        console.print(Text(f"NOT GENUINE: {printable(reason)}", style="bold red"), soft_wrap=True)
    if said["signed"] and not said["trusted"]:
        console.print("Name the key to trust with --public-key.", soft_wrap=True)


def _show_list(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        console.print("No certificate has been issued yet.")
        return
    rows = [(one["id"], minute(one["issued_at"]), one["subject"], _ended(one)) for one in found]
    show_rows(console, ("id!", "issued!", "pseudonym!", "erasure"), rows)


def _show_one(console: Console, document: Mapping[str, Any]) -> None:
    show_facts(
        console,
        {
            "id": document["id"],
            "erased": f"pseudonym {document['subject']}",
            "issued": document["issued_at"],
            "ledger": f"entry {document['ledger']['no']}, {document['ledger']['hash']}",
            "engine": document["engine"],
            "key": document["key"]["id"],
        },
    )
    show_places(console, document["places"])
    for remark in document["remarks"]:
        console.print(Text(f"- {printable(remark)}"), soft_wrap=True)


def show_places(console: Console, places: Sequence[Mapping[str, Any]]) -> None:
    """What was found, removed and left in each place; those where nothing was are only counted."""
    shown = [place for place in places if any(place[name] for name in ("found", "removed", "left"))]
    rows = [
        (printable(place["name"]), f"{place['found']:,}", f"{place['removed']:,}", _left(place["left"]))
        for place in shown
    ]
    if rows:
        show_rows(console, ("place!", "found>", "removed>", "left>"), rows)
        if others := len(places) - len(shown):
            console.print(f"Nothing was in {counted(others, 'other place')}.")
    elif places:
        console.print(f"Nothing was in any of {counted(len(places), 'place')}.")


def _left(count: int) -> Text:
    return Text(f"{count:,}", style="bold red" if count else "")


def _ended(document: Mapping[str, Any]) -> str:
    left = sum(place["left"] for place in document["places"])
    return f"not complete: {left:,} left" if left else "pending" if document["pending"] else "complete"
