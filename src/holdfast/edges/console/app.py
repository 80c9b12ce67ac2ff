"""The console as routes: its pages, its actions, its jobs, signing in and out, and the files that pages load.

The way to each is the same: who asks is known, may do it, and is one of so many at once; then it runs in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import PurePath
from typing import Any, Final, cast
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast.access.replies import Replies, Reply, fingerprint
from holdfast.access.sign_ins import SignIns
from holdfast.core.errors import HoldfastError, InvalidInputError, NotFoundError, UnauthenticatedError, quote
from holdfast.core.values import check_tenant
from holdfast.edges.access.callers import Callers
from holdfast.edges.console.catalog import ACTIONS, PAGES, SECTIONS
from holdfast.edges.console.html import HEADERS, render, send_asset
from holdfast.edges.console.jobs import Jobs, hash_token
from holdfast.edges.console.sign_in import (
    COOKIE,
    NOTE_COOKIE,
    TENANT_COOKIE,
    Visitor,
    check_form,
    identify,
    keep_note,
    open_gate,
    proof_of,
    read_note,
    read_token,
    set_cookie,
)
from holdfast.edges.console.table import PREFIX, Action, Entry, Fields, Page
from holdfast.edges.console.visit import Visit
from holdfast.edges.operations.errors import PublicError, publish
from holdfast.edges.operations.outputs import FileAnswer
from holdfast.edges.rest.streams import stream_file
from holdfast.engine import Holdfast

SIGN_IN: Final = f"{PREFIX}/sign-in"
_CONFIRMED: Final = "confirmed"
#: Names of what a form has beside the fields of its action.
_OWN: Final = frozenset({"proof", _CONFIRMED})
_MAX_FILE_BYTES: Final = 16 * 1024 * 1024


class Console:
    """The console of one process, over an open store."""

    def __init__(self, holdfast: Holdfast, callers: Callers) -> None:
        self._callers = callers
        self._sign_ins: SignIns = holdfast.sign_ins
        self._clock: Callable[[], datetime] = holdfast.services.clock
        self._replies: Replies = holdfast.replies
        self._jobs = Jobs(holdfast.services.console_jobs, holdfast.services.now)

    def routes(self) -> list[BaseRoute]:
        """Every route. What is below the console and no page of it is told so by a page."""
        pages = [Route(page.path, self._guard(self._page(page)), name=page.path) for page in PAGES.values()]
        return [
            *pages,
            Route(f"{PREFIX}/do/{{name}}", self._guard(self._act), methods=["GET", "POST"]),
            Route(f"{PREFIX}/jobs/{{job_id}}", self._guard(_in_thread(self._show_job))),
            Route(f"{PREFIX}/jobs/{{job_id}}/file", self._guard(_in_thread(self._send_file))),
            Route(f"{PREFIX}/tenant", self._guard(self._choose_tenant), methods=["POST"]),
            Route(f"{PREFIX}/sign-out", self._guard(self._sign_out), methods=["POST"]),
            Route(SIGN_IN, self._sign_in, methods=["GET", "POST"]),
            Route(f"{PREFIX}/static/{{name}}", send_asset),
            Route(f"{PREFIX}/{{rest:path}}", self._guard(self._unknown), methods=["GET", "POST"]),
        ]

    # --- the way in ---------------------------------------------------------------------------------------------------

    def _guard(self, answer: Callable[[Request, Visitor], Any]) -> Callable[[Request], Any]:
        """A handler that knows who asks, and whose errors are pages."""

        async def handle(request: Request) -> Response:
            visitor = None
            try:
                visitor = await identify(request, self._callers, self._sign_ins)
                request.state.caller = visitor.principal  # for the log and for limits
                if request.method == "POST":
                    form = await request.form(max_part_size=_MAX_FILE_BYTES)
                    check_form(request, visitor.token, form.get("proof"))
                async with self._callers.shares.slot(visitor.principal):
                    response: Response = await answer(request, visitor)
            except UnauthenticatedError:
                if request.method != "GET":
                    return self._show_problem(request, None, UnauthenticatedError("sign in again; nothing was changed"))
                wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return _redirect(f"{SIGN_IN}?{urlencode({'next': wanted})}")
            except HTTPException as problem:  # of a form that cannot be read
                return self._show_problem(request, visitor, InvalidInputError(str(problem.detail)))
            except Exception as problem:  # noqa: BLE001 - whatever it is, it is shown as a page
                return self._show_problem(request, visitor, problem)
            finally:
                await request.close()  # of files that came with a form, nothing is kept
            if visitor.is_new:
                set_cookie(request, response, COOKIE, visitor.token)
            if NOTE_COOKIE in request.cookies and request.method == "GET":
                set_cookie(request, response, NOTE_COOKIE, "", 0)
            return response

        return handle

    def _show_problem(self, request: Request, visitor: Visitor | None, problem: BaseException) -> Response:
        known = publish(problem)
        return render(
            "problem.html", {**self._frame(request, visitor), "title": "Refused", "problem": known}, known.status
        )

    def _frame(self, request: Request, visitor: Visitor | None, section: str = "") -> dict[str, Any]:
        """What every page shows around its own: the navigation, by what the caller may see, and what just happened."""
        principal = None if visitor is None else visitor.principal
        shown = [one for one in SECTIONS if principal is not None and one.pages[0].is_for(principal)]
        tenant = request.cookies.get(TENANT_COOKIE) or "default"
        return {
            "navigation": [(one.name, one.pages[0].path) for one in shown],
            "section": section,
            "visitor": visitor,
            "keys_required": self._callers.keys_required,
            "tenant": "" if principal is None else tenant if principal.is_operator else principal.tenant,
            "note": None if visitor is None else read_note(request, visitor.token),
            "may_act": lambda name: principal is not None and ACTIONS[name].is_for(principal),
            "actions": ACTIONS,
            "now": self._clock(),
            "path": request.url.path,
            "query": dict(request.query_params),
        }

    def _visit(self, request: Request, visitor: Visitor, row: Page | Action) -> Visit:
        declared = {*row.calls, *row.may_call} if isinstance(row, Page) else {row.operation_name, *row.may_call}
        gate = open_gate(request, self._callers, visitor.principal)
        return Visit(gate, dict(request.query_params), declared, self._clock())

    # --- pages --------------------------------------------------------------------------------------------------------

    def _page(self, page: Page) -> Callable[[Request, Visitor], Any]:
        section = next(one.name for one in SECTIONS if page in one.pages)

        def show(request: Request, visitor: Visitor) -> Response:
            visit = self._visit(request, visitor, page)
            for name in () if page.is_for(visit.caller) else page.calls or page.may_call:
                visit.check(name)
            values = {**self._frame(request, visitor, section), "title": page.title, "visit": visit, **page.show(visit)}
            return render(page.template, values)

        return _in_thread(show)

    async def _unknown(self, request: Request, _visitor: Visitor) -> Response:
        raise NotFoundError(f"there is no page {quote(request.url.path)} in the console")

    # --- actions ------------------------------------------------------------------------------------------------------

    async def _act(self, request: Request, visitor: Visitor) -> Response:
        action = ACTIONS.get(request.path_params["name"])
        if action is None:
            raise NotFoundError(f"there is no action {quote(request.path_params['name'])} in the console")
        if request.method == "GET":
            fields, confirmed = _read_fields(action, request.query_params), None
        else:
            form = await request.form()
            fields = _read_fields(action, form, await _read_files(action, form))
            confirmed = str(form.get(_CONFIRMED, "")) or ("" if action.is_question else None)
        return await run_in_threadpool(self._run_action, request, visitor, action, fields, confirmed)

    def _run_action(
        self, request: Request, visitor: Visitor, action: Action, fields: Fields, confirmed: str | None
    ) -> Response:
        """Show the effect of an action, or carry it out: ``confirmed`` says by which page, if not ``None``."""
        visit = self._visit(request, visitor, action)
        visit.check(action.operation_name)
        _check_named(action, fields)
        problem = None
        if confirmed is not None:
            try:
                return self._carry_out(request, visitor, visit, action, fields, once=confirmed)
            except HoldfastError as refusal:
                problem = publish(refusal)
                if problem.status != 428:
                    raise
                fields = {**fields, **dict.fromkeys(refusal.needs or ("confirm",), "true")}
        return self._show_effect(request, visitor, visit, action, fields, problem=problem)

    def _carry_out(
        self, request: Request, visitor: Visitor, visit: Visit, action: Action, fields: Fields, *, once: str
    ) -> Response:
        run = visit.bind(action.operation_name, fields)
        if action.operation.is_long:
            begin = self._jobs.offer if action.sends_file else partial(self._jobs.start, run=run, once=once)
            job = begin(visitor.token, action, fields)
            return _redirect(f"{PREFIX}/jobs/{job.id}")
        response = _redirect(action.back(fields))
        keep_note(request, response, visitor.token, self._run_once(visitor.token, visit, action, fields, once))
        return response

    def _run_once(self, token: str, visit: Visit, action: Action, fields: Fields, once: str) -> Any:
        """Carry an action out and say what happened. What is sent twice from one page is done once, and said again."""
        run = visit.bind(action.operation_name, fields)

        def work() -> Reply:
            return Reply(200, {}, json.dumps(describe_result(action, fields, run())).encode())

        def failed() -> Reply:
            return Reply(
                500, {}, json.dumps({"said": "it broke off, and nobody knows how far it came", "undo": None}).encode()
            )

        if not once:
            return json.loads(work().body)
        mark = fingerprint(
            "CONSOLE", action.name, json.dumps([once, fields], sort_keys=True).encode(), tenant=visit.tenant_id
        )
        reply, _ = self._replies.once(hash_token(token).hex(), mark.hex(), mark).carry_out(work, failed)
        return json.loads(reply.body)

    def _show_effect(
        self,
        request: Request,
        visitor: Visitor,
        visit: Visit,
        action: Action,
        fields: Fields,
        *,
        problem: PublicError | None,
    ) -> Response:
        is_entered = all(not entry.needed or fields.get(entry.name) not in (None, "") for entry in action.entries)
        effect = action.preview(visit, fields) if is_entered else None
        section = next(one.name for one in SECTIONS if action in one.actions)
        hidden = {**fields, **(effect.fields if effect else {})}
        values = {
            **self._frame(request, visitor, section),
            "title": action.title,
            "action": action,
            "fields": fields,
            "hidden": {name: _write_field(value) for name, value in hidden.items()},
            "effect": effect,
            "problem": problem,
            "back": action.back(fields),
        }
        return render("action.html", values, 200 if problem is None else problem.status)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def _show_job(self, request: Request, visitor: Visitor) -> Response:
        job = self._jobs.get(request.path_params["job_id"], visitor.token)
        action = ACTIONS[job.action]
        section = next(one.name for one in SECTIONS if action in one.actions)
        values = {
            **self._frame(request, visitor, section),
            "title": action.title,
            "action": action,
            "job": job,
            "back": action.back(job.fields),
        }
        if not job.is_over or job.is_cleared or job.problem is not None or action.sends_file:
            return render("job.html", values)
        is_shown = action.is_question and action.result is not None
        said = None if is_shown else describe_result(action, job.fields, job.result)
        values |= {"note": said, **action.arrange(job.result, request.query_params)}
        return render(action.result or "job.html", values)

    def _send_file(self, request: Request, visitor: Visitor) -> Response:
        job = self._jobs.get(request.path_params["job_id"], visitor.token)
        action = ACTIONS[job.action]
        if not action.sends_file or job.is_cleared:
            raise NotFoundError("this job has no file; start it again on the page that offers it")
        run = self._visit(request, visitor, action).bind(action.operation_name, job.fields)
        kind = cast("type[FileAnswer]", action.operation.output)
        name = action.name + PurePath(kind.file_name).suffix
        write = self._jobs.send(job, visitor.token, action, run)
        return stream_file(write, media_type=kind.media_type, filename=name)

    # --- who asks -----------------------------------------------------------------------------------------------------

    async def _choose_tenant(self, request: Request, visitor: Visitor) -> Response:
        form = await request.form()
        response = _redirect(PREFIX)
        if visitor.principal.is_operator:
            set_cookie(request, response, TENANT_COOKIE, check_tenant(form.get("tenant")))
        return response

    async def _sign_out(self, request: Request, visitor: Visitor) -> Response:
        await run_in_threadpool(self._sign_ins.end, visitor.token)
        response = _redirect(SIGN_IN)
        for name in (COOKIE, TENANT_COOKIE, NOTE_COOKIE):
            set_cookie(request, response, name, "", 0)
        return response

    async def _sign_in(self, request: Request) -> Response:
        token, is_new = read_token(request)
        problem, wanted = None, _own_path(request.query_params.get("next"))
        if request.method == "POST":
            try:
                form = await request.form()
                check_form(request, token, form.get("proof"))
                signed_in = await run_in_threadpool(self._sign_ins.begin, str(form.get("key", "")).strip()[:256])
            except HoldfastError as refusal:
                problem = publish(refusal)
            else:
                response: Response = _redirect(_own_path(str(form.get("next", ""))))
                set_cookie(request, response, COOKIE, signed_in)
                return response
        values = {
            **self._frame(request, None),
            "title": "Sign in",
            "proof": proof_of(token),
            "problem": problem,
            "next": wanted,
        }
        response = render("sign_in.html", values, 200 if problem is None else problem.status)
        if is_new:
            set_cookie(request, response, COOKIE, token)
        return response


def describe_result(action: Action, fields: Fields, result: Any) -> dict[str, Any]:
    """What is said after an action: what happened, and how to undo it."""
    undo = action.undo(fields, result)
    return {"said": action.describe(fields, result), "undo": None if undo is None else undo._asdict()}


def _in_thread(show: Callable[[Request, Visitor], Response]) -> Callable[[Request, Visitor], Any]:
    async def answer(request: Request, visitor: Visitor) -> Response:
        return await run_in_threadpool(show, request, visitor)

    return answer


def _redirect(path: str) -> RedirectResponse:
    return RedirectResponse(path, 303, dict(HEADERS))


def _own_path(path: str | None) -> str:
    """A path of the console; its first page, for anything else."""
    is_own = path is not None and (path == PREFIX or path.startswith((f"{PREFIX}/", f"{PREFIX}?")))
    return path if is_own and path is not None and path.isprintable() and "\\" not in path else PREFIX


# --- forms ------------------------------------------------------------------------------------------------------------


def _read_fields(action: Action, given: Mapping[str, Any], files: Mapping[str, str] | None = None) -> Fields:
    """The fields of an action, as they were sent. What was left empty is not among them."""
    known = action.operation.inputs.model_fields.keys()
    fields: Fields = {name: value for name, value in given.items() if name in known and isinstance(value, str)}
    fields |= files or {}
    for entry in action.entries:
        if entry.form in ("json", "file") and fields.get(entry.name):
            fields[entry.name] = _read_json(entry, fields[entry.name])
    return {name: value for name, value in fields.items() if value != "" and name not in _OWN}


def _check_named(action: Action, fields: Fields) -> None:
    """``InvalidInputError`` for an action without what it is about, which the page that offers it names."""
    entered = {entry.name for entry in action.entries}
    needed = {name for name, field in action.operation.inputs.model_fields.items() if field.is_required()}
    missing = sorted(needed - entered - fields.keys())
    if missing:
        raise InvalidInputError(f"the address does not name {', '.join(missing)}; begin on the page that offers this")


async def _read_files(action: Action, form: FormData) -> dict[str, str]:
    read = {}
    for entry in action.entries:
        file = form.get(entry.name)
        if isinstance(file, UploadFile):
            read[entry.name] = (await file.read()).decode("utf-8", "replace")
    return read


def _read_json(entry: Entry, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInputError(f"{entry.label} must be JSON; what was given cannot be read as that") from None


def _write_field(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
