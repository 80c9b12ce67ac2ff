"""``holdfast access create | list | revoke``: API keys, with which programs call a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from holdfast.core.access import Right
from holdfast.core.errors import InvalidInputError
from holdfast.core.records import ALL
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, Home, Json, Url, read_moment
from holdfast.edges.cli.output import printable, show
from holdfast.edges.cli.render import minute, show_rows
from holdfast.edges.cli.store import open_engine

_REACH: Final = "What it reaches"
_CREATE: Final = "holdfast access create --name laptop --right read"

access = add_group(
    "access",
    about="Make and revoke API keys, with which programs call the service.",
    examples=[_CREATE],
)

_Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="TENANT", help="The tenant that it is for.", rich_help_panel=_REACH),
]
_Operator = Annotated[
    bool,
    typer.Option(
        "--operator", help="For every tenant, and for the store as a whole: backups, schedule.", rich_help_panel=_REACH
    ),
]


@command(
    access,
    "create",
    examples=(
        "holdfast access create --name bot --right write --tenant acme --agent travel --expires +90d",
        "holdfast access create --name operations --right admin --operator --json",
        f"export HOLDFAST_API_KEY=$({_CREATE} --quiet)",
    ),
)
def create_key(
    *,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What it is called in lists and in the audit.")],
    right: Annotated[
        list[Right],
        typer.Option(
            "--right",
            metavar="RIGHT",
            help="What it allows: read, write, govern (rules, holds, sweeps, erasure) or admin (how it is run). Each "
            "includes those before it. May be given several times.",
        ),
    ],
    tenant: _Tenant = None,
    operator: _Operator = False,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            "-u",
            metavar="USER",
            help="Only what is this user's. May be given several times.",
            rich_help_panel=_REACH,
        ),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            "-a",
            metavar="AGENT",
            help="Only as this agent. May be given several times.",
            rich_help_panel=_REACH,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires", metavar="WHEN", help="When it ends: 2027-01-01, or +90d from now; never, if not given."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the secret and nothing else.")] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make an API key and print its secret, this once: only a hash of it is kept.

    Bound to users, a key reaches what is theirs; bound to agents, it acts as one of these and sees nothing that is
    another agent's own.
    """
    whose = _tenant_of(tenant, operator=operator)
    with open_engine(home, url, quiet=as_json) as engine:
        ends = None if expires is None else read_moment(expires, now=engine.parts.clock())
        key, secret = engine.access.create(
            name, rights=right, tenant=whose, users=user or None, agents=agent or None, expires_at=ends
        )
    if quiet and not as_json:
        typer.echo(secret)
    else:
        show({**key.as_dict(), "secret": secret}, _show_created, as_json=as_json)


@command(access, "list", examples=("holdfast access list --tenant acme",))
def list_keys(
    *,
    tenant: _Tenant = None,
    operator: Annotated[bool, typer.Option("--operator", help="Only the keys of operators.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the ids of keys that stand, and nothing else.")
    ] = False,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List API keys, of a tenant or of all, oldest first; those that were revoked too. Secrets are not known."""
    wanted = None if tenant is None and not operator else _tenant_of(tenant, operator=operator)
    with open_engine(home, url, quiet=as_json) as engine:
        keys, now = engine.access.list(wanted), engine.parts.now()
    if quiet and not as_json:
        for key in keys:
            if key.is_valid(now):
                typer.echo(key.id)
        return
    show([{**key.as_dict(), "valid": key.is_valid(now)} for key in keys], _show_keys, as_json=as_json)


@command(access, "revoke", examples=(f"{_CREATE}\nholdfast access revoke $(holdfast access list --quiet)",))
def revoke_key(
    *,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as holdfast access list shows it.")],
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Revoke an API key for good. Services that run let nobody in with it after a few seconds."""
    with open_engine(home, url, quiet=as_json) as engine:
        revoked = engine.access.revoke(key_id)
    show(revoked.as_dict(), _show_revoked, as_json=as_json)


def _tenant_of(tenant: str | None, *, operator: bool) -> str:
    if operator and tenant is not None:
        raise InvalidInputError("an operator's key is for every tenant: give --tenant or --operator, not both")
    return ALL if operator else DEFAULT_TENANT if tenant is None else tenant


def _show_created(console: Console, made: Mapping[str, Any]) -> None:
    console.print(f"API key {made['key_id']} ({printable(made['name'])}) may {_allowed(made)}.", soft_wrap=True)
    console.print()
    console.print(Text(made["secret"], style="bold green"), soft_wrap=True)
    console.print()
    console.print("This is the only time that it is shown. Keep it where secrets are kept.", style="yellow")
    console.print("A service that runs without keys asks every caller for one from its next start.")


def _show_keys(console: Console, keys: Sequence[Mapping[str, Any]]) -> None:
    if not keys:
        console.print("There are no API keys; make one with: holdfast access create")
        return
    rows = [
        (key["key_id"], printable(key["name"]), printable(_reach(key)), ", ".join(key["rights"]), _standing(key))
        for key in keys
    ]
    show_rows(console, ("id!", "name", "for", "rights", "state"), rows)


def _show_revoked(console: Console, key: Mapping[str, Any]) -> None:
    console.print(f"API key {key['key_id']} ({printable(key['name'])}) is revoked.", soft_wrap=True)


def _allowed(key: Mapping[str, Any]) -> str:
    return f"{', '.join(key['rights'])} for {printable(_reach(key))}"


def _reach(key: Mapping[str, Any]) -> str:
    parts = ["every tenant" if key["tenant"] == ALL else f"tenant {key['tenant']}"]
    for name, word in (("users", "user"), ("agents", "agent")):
        if key[name]:
            parts.append(f"{word if len(key[name]) == 1 else name} {', '.join(key[name])}")
    return "; ".join(parts)


def _standing(key: Mapping[str, Any]) -> Text:
    if key["revoked_at"] is not None:
        return Text(f"revoked {minute(key['revoked_at'])}", style="bright_black")
    if not key["valid"]:
        return Text(f"expired {minute(key['expires_at'])}", style="bright_black")
    used = minute(key["last_used_at"], "never")
    until = "" if key["expires_at"] is None else f", until {minute(key['expires_at'])}"
    return Text(f"last used: {used}{until}", style="green")
