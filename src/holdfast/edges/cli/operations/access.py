"""Make and revoke API keys, with which programs call the service.

Examples:
    holdfast access create --name laptop --right read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from rich.text import Text

from holdfast.core.access import Right
from holdfast.core.errors import InvalidInputError
from holdfast.core.records import ALL
from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import DEFAULT_TENANT, declare, of_store, read_moment
from holdfast.edges.cli.output import Cell, Output, Part, dim, good, minute, table, warn

_REACH: Final = "What it reaches"

access = add_group(__name__, "access", __doc__)

OfTenant = Annotated[str | None, declare("--tenant TENANT", "The tenant that it is for.", _REACH)]


def _show_created(made: Mapping[str, Any]) -> Iterator[Part]:
    yield f"API key {made['key_id']} ({made['name']}) may {', '.join(made['rights'])} for {_reach(made)}."
    yield ""
    yield Text(made["secret"], style="bold green")
    yield ""
    yield warn("This is the only time that it is shown. Keep it where secrets are kept.")
    yield "A service that runs without keys asks every caller for one from its next start."


@command(access, "create", of_store, render=_show_created)
def create_key(
    call: Call,
    *,
    name: str,
    right: list[Right],
    tenant: OfTenant = None,
    operator: bool = False,
    user: list[str] | None = None,
    agent: list[str] | None = None,
    expires: str | None = None,
    quiet: bool = False,
) -> Any:
    """Make an API key and print its secret, this once: only a hash of it is kept.

    Bound to users, a key reaches what is theirs; bound to agents, it acts as one of these and sees nothing that is
    another agent's own.

    Options:
        --name NAME  What it is called in lists and in the audit.
        --right RIGHT  What it allows: read, write, govern (rules, holds, sweeps, erasure) or admin (how it is run).
            Each includes those before it. May be given several times.
        --expires WHEN  When it ends: 2027-01-01, or +90d from now; never, if not given.
        --quiet -q  Print the secret and nothing else.

    What it reaches:
        --operator  For every tenant, and for the store as a whole: backups, schedule.
        --user -u USER  Only what is this user's. May be given several times.
        --agent -a AGENT  Only as this agent. May be given several times.

    Examples:
        holdfast access create --name bot --right write --tenant acme --agent travel --expires +90d

        holdfast access create --name operations --right admin --operator --json

        export HOLDFAST_API_KEY=$(holdfast access create --name laptop --right read --quiet)
    """
    whose = _tenant_of(tenant, operator=operator)
    ends = None if expires is None else read_moment(expires, now=call.engine.services.clock())
    key, secret = call.engine.access.create(
        name, rights=right, tenant=whose, users=user or None, agents=agent or None, expires_at=ends
    )
    return Output({**key.as_dict(), "secret": secret}, text=f"{secret}\n" if quiet else None)


@table(
    "id!, name, for, rights, state",
    empty="There are no API keys; make one with: holdfast access create --name NAME --right RIGHT",
)
def _show_keys(key: Mapping[str, Any]) -> list[Cell]:
    return [key["key_id"], key["name"], _reach(key), ", ".join(key["rights"]), _describe_state(key)]


@command(access, "list", of_store, render=_show_keys)
def list_keys(call: Call, *, tenant: OfTenant = None, operator: bool = False, quiet: bool = False) -> Any:
    """List API keys, of a tenant or of all, oldest first; those that were revoked too. Secrets are not known.

    Options:
        --operator  Only the keys of operators.
        --quiet -q  Print the ids of keys that stand, and nothing else.

    Examples:
        holdfast access list --tenant acme
    """
    wanted = None if tenant is None and not operator else _tenant_of(tenant, operator=operator)
    keys, now = call.engine.access.list(wanted), call.engine.services.now()
    ids = "".join(f"{key.id}\n" for key in keys if key.is_valid(now))
    value = [{**key.as_dict(), "valid": key.is_valid(now)} for key in keys]
    return Output(value, text=ids if quiet else None)


@command(access, "revoke", of_store, render=lambda key: f"API key {key['key_id']} ({key['name']}) is revoked.")
def revoke_key(call: Call, *, key_id: str) -> Any:
    """Revoke an API key for good. Services that run let nobody in with it after a few seconds.

    Options:
        ID  The key's id, as holdfast access list shows it.

    Examples:
        holdfast access create --name laptop --right read
        id=$(holdfast access list --quiet | tail -n 1)
        holdfast access revoke $id
    """
    return call.engine.access.revoke(key_id).as_dict()


def _tenant_of(tenant: str | None, *, operator: bool) -> str:
    if operator and tenant is not None:
        raise InvalidInputError("an operator's key is for every tenant: give --tenant or --operator, not both")
    return ALL if operator else DEFAULT_TENANT if tenant is None else tenant


def _reach(key: Mapping[str, Any]) -> str:
    whose = "every tenant" if key["tenant"] == ALL else f"tenant {key['tenant']}"
    names = [name for name in ("users", "agents") if key[name]]
    bound = [f"{name if len(key[name]) > 1 else name[:-1]} {', '.join(key[name])}" for name in names]
    return "; ".join([whose, *bound])


def _describe_state(key: Mapping[str, Any]) -> Text:
    if key["revoked_at"] is not None:
        return dim(f"revoked {minute(key['revoked_at'])}")
    if not key["valid"]:
        return dim(f"expired {minute(key['expires_at'])}")
    until = "" if key["expires_at"] is None else f", until {minute(key['expires_at'])}"
    return good(f"last used: {minute(key['last_used_at'])}{until}")
