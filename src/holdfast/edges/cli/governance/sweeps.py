"""``holdfast sweep``: archive, recycle and delete what is due, or say what that would be."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.errors import InvalidInputError
from holdfast.edges.cli.app import Call, app, command
from holdfast.edges.cli.options import DEFAULT_TENANT, DryRun, read_moment
from holdfast.edges.cli.output import Cell, Output, Part, Rows, bold, good, indent, minute, plural, warn

if TYPE_CHECKING:
    from holdfast.lifecycle.sweeping.plan import Plan

_SAMPLES: Final = 5


@command(app, "sweep")
def sweep(
    call: Call, *, dry_run: DryRun = False, at: str | None = None, digest: str | None = None, confirm: bool = False
) -> Any:
    """Archive, recycle and delete what is due, as the rules say.

    Someone who would lose more than a fifth of their memories, and more than 1,000, is set aside until --confirm. While
    the clock is far ahead of what the store has seen, what cannot be undone waits: until --confirm, or for a day.

    Options:
        --at WHEN  As of an ISO moment, a date, or so long from now: +90d, +12h, +2w.
        --digest DIGEST  Carry out exactly the plan that a dry run showed, or nothing.
        --confirm  Sweep those too who would lose much at once, and trust a clock that leaped or is far ahead.

    Examples:
        holdfast sweep --dry-run

        holdfast sweep --dry-run --at +90d --json

        holdfast sweep
    """
    if dry_run and digest is not None:
        raise InvalidInputError("--digest carries a plan out; leave --dry-run out, or make a new plan without --digest")
    moment = None if at is None else read_moment(at, now=call.engine.services.clock())
    if dry_run:
        return Output(_plan(call, moment, confirm=confirm), _show_plan)
    return Output(_carry_out(call, moment, digest, confirm=confirm), _show_report)


def _plan(call: Call, at: datetime | str | None, *, confirm: bool) -> dict[str, Any]:
    from holdfast.lifecycle.sweeping.plan import decision_to_dict  # noqa: PLC0415 - not needed for --help

    plan: Plan = call.engine.sweep(dry_run=True, at=at, confirm=confirm)  # type: ignore[assignment]
    # Only the first few decisions are read: a plan may have millions of them.
    samples = [decision_to_dict(decision) for decision in islice(plan.decisions, _SAMPLES)]
    tenant = None if call.tenant == DEFAULT_TENANT else call.tenant
    named = {"--tenant": tenant, "--home": call.home, "--url": call.url}
    place = [str(word) for option in named.items() if option[1] is not None for word in option]
    words = ["holdfast", "sweep", "--digest", plan.digest, *(["--confirm"] if confirm else []), *place]
    apply = shlex.join(words) if plan.at <= call.engine.services.now() else None
    return {**plan.to_dict(samples=0), "samples": samples, "apply": apply}


def _carry_out(call: Call, at: datetime | str | None, digest: str | None, *, confirm: bool) -> dict[str, Any]:
    """Sweep; where somebody watches, count first how much there is to do."""
    total = 0
    if digest is None and call.is_watched:
        planned: Any = call.engine.sweep(dry_run=True, at=at, confirm=confirm)
        total = planned.total
    with call.progress("sweeping", total) as advance:
        report: Any = call.engine.sweep(at=at, digest=digest, confirm=confirm, progress=advance)
    return dict(report.to_dict())


def _show_plan(plan: Mapping[str, Any]) -> Iterator[Part]:
    if plan["lines"]:
        yield f"A sweep at {plan['at']} would do this; nothing was changed."
        yield _to_table(plan["lines"])
    else:
        yield f"Nothing is due at {plan['at']}."
    if plan["samples"]:
        yield ""
        yield "Among them:"
        rows = [
            (one["memory_type"], one["action"], one["memory_id"], one["user_id"], minute(one["due_at"], "now"))
            for one in plan["samples"]
        ]
        yield Rows("kind!, action!, id!, user, due!", rows)
    if plan["set_aside"]:
        yield ""
        yield warn("Set aside, because they would lose much at once (--confirm sweeps them too):")
        yield Rows("who, id, would lose>, of>", map(_aside_row, plan["set_aside"]))
    if plan["waiting"] is not None:
        yield ""
        yield warn(f"This waits: {plan['waiting']['reason']}.")
        yield _to_table(plan["waiting"]["lines"])
    if plan["held"]:
        yield f"{plan['held']:,} more are due, and kept by holds (holdfast hold list)."
    if plan["apply"] is None:
        yield "It lies ahead: a forecast can be looked at, not carried out."
    elif plan["lines"]:
        yield "To carry out exactly this:"
        yield indent(plan["apply"])


def _show_report(report: Mapping[str, Any]) -> Iterator[Part]:
    if report["lines"]:
        yield _to_table(report["lines"])
        if report["bytes_before"]:
            before, after = report["bytes_before"], report["bytes_after"]
            yield f"In the store, the archived memories took {before:,} bytes, and take {after:,} now."
        yield good(f"Swept in {report['seconds']:.1f} s.")
    else:
        yield "Nothing was due."
    if report["set_aside"]:  # who they are is on stderr, as warnings
        aside = f"{len(report['set_aside']):,} set aside because they would lose much at once"
        yield warn(f"{aside}; look, then --confirm.")
    if report["waiting"] is not None:  # why is on stderr, as a warning
        waiting = plural(report["waiting"]["records"], "record")
        yield warn(f"{waiting} must wait for the clock; they could not come back:")
        yield _to_table(report["waiting"]["lines"])
    if report["held"]:
        yield f"{report['held']:,} were due, and kept by holds (holdfast hold list)."
    if report["stale"]:
        yield f"{report['stale']:,} changed meanwhile; the next sweep looks at them again."


def _to_table(lines: Sequence[Mapping[str, Any]]) -> Rows:
    rows: list[list[Cell]] = [
        [line["memory_type"], line["action"], line["reason"], line["records"], line["bytes"]] for line in lines
    ]
    if len(rows) > 1:
        totals = [bold(sum(line[name] for line in lines)) for name in ("records", "bytes")]
        rows.append([bold("in all"), "", "", *totals])
    return Rows("kind!, action!, reason, records>, bytes>", rows)


def _aside_row(aside: Mapping[str, Any]) -> list[Cell]:
    whose = "user" if aside["agent_id"] is None else "agent"
    return [whose, str(aside[f"{whose}_id"]), aside["due"], aside["of"]]
