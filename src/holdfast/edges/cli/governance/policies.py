"""``holdfast policy list | get | show | set | remove | preview | apply``: how long things live, and for whom."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.core.errors import InvalidRuleError, quote
from holdfast.edges.cli.app import add_group, command
from holdfast.edges.cli.governance.policy_tables import (
    show_changes,
    show_life,
    show_policies,
    show_preview,
    show_removed,
    show_rules,
    show_set,
)
from holdfast.edges.cli.options import DEFAULT_AGENT, DEFAULT_TENANT, Agent, Home, Json, Session, Tenant, Url, User
from holdfast.edges.cli.output import error_console, show
from holdfast.edges.cli.selection import Author, Confirm, OfAgent, OfSession, OfUser, OneMemory, scope_of
from holdfast.edges.cli.store import open_engine

policy = add_group(
    "policy",
    about="Show and set how long things live, and for whom.",
    examples=["holdfast policy list"],
)

_KINDS = "short_term, long_term, persona, episodic, entity, structured, history, audit, or '*' for every kind"
Kind = Annotated[str, typer.Argument(metavar="KIND", help=f"What lives so long: {_KINDS}.")]
ArchiveAfter = Annotated[
    str | None, typer.Option("--archive-after", metavar="DAYS", help="Archive it at this age, or never.")
]
DeleteAfter = Annotated[
    str | None, typer.Option("--delete-after", metavar="DAYS", help="Remove it at this age, or never.")
]
Keep = Annotated[
    str | None, typer.Option("--keep", metavar="DAYS", help="Let no rule and no prune remove it before, or forever.")
]


@command(policy, "list", examples=("holdfast policy list", "holdfast policy list --json"))
def list_policies(
    *, tenant: Tenant = DEFAULT_TENANT, home: Home = None, url: Url = None, as_json: Json = False
) -> None:
    """List every rule in force: the defaults first, then from the widest to the most specific."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        rules = engine.policies.list()
    show(rules, show_policies, as_json=as_json)


@command(policy, "get", examples=("holdfast policy get episodic --user alice --agent travel_agent",))
def get_policy(
    *,
    kind: Kind,
    user: OfUser = None,
    agent: OfAgent = None,
    session: OfSession = None,
    memory: OneMemory = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show how long a kind lives for a user, an agent and a session, and which rules say so."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        life = engine.policies.get(kind, **scope_of(user, agent, session, memory))
    show(life, show_life, as_json=as_json)


@command(policy, "show", examples=("holdfast policy show --user alice --agent travel_agent",))
def show_rules_in_force(
    *,
    user: User,
    agent: Agent = DEFAULT_AGENT,
    session: Session = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say how long each kind is kept for a user and an agent, by the rules in force, and which holds keep things."""
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.manager(user, agent, session).rules()
    show(found, show_rules, as_json=as_json)


@command(
    policy,
    "set",
    examples=(
        "holdfast policy set episodic --agent travel_agent --archive-after 30 --delete-after 180 --confirm",
        "holdfast policy set long_term --user alice --keep 730",
        "holdfast policy set entity --delete-after never",
    ),
)
def set_policy(
    *,
    kind: Kind,
    archive_after: ArchiveAfter = None,
    delete_after: DeleteAfter = None,
    keep: Keep = None,
    user: OfUser = None,
    agent: OfAgent = None,
    session: OfSession = None,
    memory: OneMemory = None,
    confirm: Confirm = False,
    author: Author = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Set a rule, in place of the one for the same kind and scope; for the whole tenant, if no scope is given.

    One that shortens retention needs --confirm; holdfast policy preview says what it comes to.
    """
    times = _times(archive_after, delete_after, keep)
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        scope = scope_of(user, agent, session, memory)
        done = engine.policies.set(kind, **scope, **times, confirm=confirm, author=author)
    show(done, show_set, as_json=as_json)


@command(
    policy,
    "remove",
    examples=("holdfast policy set entity --delete-after 400 --confirm\nholdfast policy remove entity",),
)
def remove_policy(
    *,
    kind: Kind,
    user: OfUser = None,
    agent: OfAgent = None,
    session: OfSession = None,
    memory: OneMemory = None,
    confirm: Confirm = False,
    author: Author = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Take a rule away: what it said is again said by wider rules, or by the defaults."""
    scope = scope_of(user, agent, session, memory)
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        done = engine.policies.remove(kind, **scope, confirm=confirm, author=author)
    show(done, show_removed, as_json=as_json)


@command(policy, "preview", examples=("holdfast policy preview episodic --delete-after 100",))
def preview_policy(
    *,
    kind: Kind,
    archive_after: ArchiveAfter = None,
    delete_after: DeleteAfter = None,
    keep: Keep = None,
    user: OfUser = None,
    agent: OfAgent = None,
    session: OfSession = None,
    memory: OneMemory = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Say what a rule would come to, and change nothing."""
    times = _times(archive_after, delete_after, keep)
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        found = engine.policies.preview(kind, **scope_of(user, agent, session, memory), **times)
    said = {
        "rule": found.rule,
        "shortens": found.shortens,
        "newly_due": found.newly_due,
        "bytes": found.bytes,
        "held": found.held,
    }
    show(said, show_preview, as_json=as_json)


@command(
    policy,
    "apply",
    examples=(
        """\
file=$(mktemp)
echo 'policy = [{memory_type = "entity", delete_after_days = 400}]' > $file
holdfast policy apply $file --dry-run
holdfast policy apply $file --confirm
rm $file""",
    ),
)
def apply_file(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file with a policy table for each rule.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")] = False,
    confirm: Confirm = False,
    author: Author = None,
    tenant: Tenant = DEFAULT_TENANT,
    home: Home = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Apply the rules in a file: all of them in one instant, or none.

    Other rules stay, unless it says exclusive = true. A file that shortens retention asks first, or needs --confirm.
    """
    from holdfast.lifecycle.policies import read_policies  # noqa: PLC0415 - not for --help

    wanted, exclusive = read_policies(file)
    with open_engine(home, url, tenant, quiet=as_json) as engine:
        if dry_run or (not confirm and not as_json and _can_ask()):
            changes = engine.policies.preview_all(wanted, exclusive=exclusive)
            if not dry_run and changes.preview.shortens:
                show_changes(error_console(), {**changes.shown(), "applied": False})
                confirm = typer.confirm("It shortens retention. Apply it?", err=True, abort=True)
        if not dry_run:
            changes = engine.policies.set_all(wanted, exclusive=exclusive, confirm=confirm, author=author)
    show({**changes.shown(), "applied": not dry_run}, show_changes, as_json=as_json)


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _times(archive_after: str | None, delete_after: str | None, keep: str | None) -> dict[str, Any]:
    """The times that were given, by the engine's names for them."""
    given = (
        ("archive_after_days", "--archive-after", archive_after),
        ("delete_after_days", "--delete-after", delete_after),
        ("keep_days", "--keep", keep),
    )
    return {name: _days(option, text) for name, option, text in given if text is not None}


def _days(option: str, text: str) -> float | str:
    if text in ("never", "forever"):
        return text
    try:
        number = float(text)
    except ValueError:
        raise InvalidRuleError(f"{option} must be a number of days, or never, not {quote(text)}") from None
    return int(number) if number.is_integer() else number
