"""Read the audit chain, check that it is whole, and seal it.

Examples:
    holdfast audit tail

    holdfast audit verify
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.edges.cli.app import Call, add_group, command
from holdfast.edges.cli.options import Limit, OfUser
from holdfast.edges.cli.output import Cell, ExitCode, Output, Part, Rows, bad, cut, good, minute, plural, table, to_json

audit = add_group(__name__, "audit", __doc__)


@table("at!, action!, by!, id!, why", empty="The audit chain is empty.")
def _show_entries(entry: Mapping[str, Any]) -> list[Cell]:
    why = str(entry["detail"].get("reason") or to_json(entry["detail"]) or "not given")
    return [minute(entry["at"]), entry["action"], entry["actor"], entry["item"] or "all", cut(why, 100)]


@command(audit, "tail", render=_show_entries)
def tail(call: Call, *, limit: Limit = 20, user: OfUser = None) -> Any:
    """Show the latest entries of the audit chain, the newest last. It names no users.

    Examples:
        holdfast audit tail -n 10

        holdfast audit tail --user alice --json
    """
    return call.engine.audit.tail(limit, user_id=user)


@command(audit, "list", render=_show_entries)
def list_entries(
    call: Call,
    *,
    user: OfUser = None,
    action: str | None = None,
    by: str | None = None,
    item: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: Limit = 50,
) -> Any:
    """List entries of the audit chain, the newest first: of one user, action, actor, thing, or some days.

    Options:
        --action ACTION  Of this action, such as recycled.
        --by ACTOR  Done by this one: a key, cli, schedule or an author.
        --item ID  About this memory, session, hold, rule, agent or tool.
        --since WHEN  At this ISO moment or later.
        --until WHEN  Before this moment.

    Examples:
        holdfast audit list --action recycled

        holdfast audit list --user alice --since 2026-01-01 --json
    """
    which = {"user_id": user, "action": action, "actor": by, "item": item, "since": since, "until": until}
    found: list[Any] = []
    before: int | None = None
    while len(found) < limit:
        some, before = call.engine.audit.page(**which, before=before, limit=limit)
        found += some
        if before is None:
            break
    return found[:limit]


@command(audit, "export", render=lambda done: f"Wrote {plural(done['entries'], 'entry')} to {done['file']}.")
def export(
    call: Call,
    *,
    file: Path,
    user: OfUser = None,
    action: str | None = None,
    by: str | None = None,
    item: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Any:
    """Write entries of the audit chain to a file, as lines of JSON, the newest first.

    Options:
        FILE  Where to.
        --action ACTION  Of this action, such as recycled.
        --by ACTOR  Done by this one: a key, cli, schedule or an author.
        --item ID  About this memory, session, hold, rule, agent or tool.
        --since WHEN  At this ISO moment or later.
        --until WHEN  Before this moment.

    Examples:
        holdfast audit export audit.ndjson --since 2026-01-01
    """
    which = {"user_id": user, "action": action, "actor": by, "item": item, "since": since, "until": until}
    with file.open("wb") as target:
        return {"file": str(file), "entries": call.engine.audit.write(target, **which)}


def _show_verdict(said: Mapping[str, Any]) -> Iterator[Part]:
    entries, chains = plural(said["entries"], "entry"), plural(said["chains"], "chain")
    looked = f"{entries} of {chains}, {plural(said['checkpoints'], 'checkpoint')}"
    if said["ok"]:
        yield good(f"Whole: {looked}.")
        return
    rows = [(one["chain"][:16], str(one["seq"] or "any"), one["problem"]) for one in said["findings"]]
    yield Rows("chain, place>, what is wrong", rows)
    shown = f" (the first {len(rows)} are shown)" if said["problems"] > len(rows) else ""
    yield bad(f"BROKEN: {plural(said['problems'], 'problem')} in {looked}{shown}.")


@command(audit, "verify", render=_show_verdict)
def verify(call: Call) -> Any:
    """Look for any entry or checkpoint that was changed, removed, moved or added, in all chains of the store.

    Ends with exit code 3 if something is wrong, and says what.

    Examples:
        holdfast audit verify
    """
    with call.progress("verifying", call.engine.services.audit.sizes().entries) as advance:
        verdict = call.engine.audit.verify(advance)
    said = {name: getattr(verdict, name) for name in ("ok", "chains", "entries", "checkpoints", "problems")}
    said["findings"] = [finding._asdict() for finding in verdict.findings]
    return Output(said, code=0 if verdict else ExitCode.UNHEALTHY)


def _show_sealed(made: Mapping[str, Any]) -> str:
    what = f"{plural(made['entries'], 'entry')} of {plural(made['chains'], 'chain')}"
    return f"Checkpoint {made['checkpoint']} seals {what} ({minute(made['at'])}, {made['hash'][:16]}…)."


@command(audit, "seal", render=_show_sealed)
def seal(call: Call, *, accept: str | None = None) -> Any:
    """Seal the audit chain by a checkpoint, and note it outside the store.

    Refused where the note and the store disagree, as after a restored backup, unless --accept says why that is right.

    Options:
        --accept REASON  Why it is right that the store and the note of it disagree.

    Examples:
        holdfast audit seal
    """
    return call.engine.audit.seal(accept=accept)
