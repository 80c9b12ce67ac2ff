"""Who a browser acts for. It keeps a random token in a cookie, never a key; forms carry a proof that they are ours.

Each browser has a token from its first page on. Signing in gives it another one, which stands for the key. What is
derived from the token needs no table: the proof in each form, and the seal on what is said after an action.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import Any, Final, NamedTuple

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from holdfast.access.sign_ins import SignIns
from holdfast.core.access import LOCAL, Principal
from holdfast.core.errors import ForbiddenError, UnauthenticatedError
from holdfast.edges.access.callers import Callers
from holdfast.edges.access.gate import Gate
from holdfast.edges.console.table import PREFIX

COOKIE: Final = "holdfast_console"
#: Which tenant an operator looks at. It gives no access: the gate decides.
TENANT_COOKIE: Final = "holdfast_tenant"
NOTE_COOKIE: Final = "holdfast_note"
_TOKEN_CHARS: Final = 43
_NOTE_SECONDS: Final = 60
_NOTE_CHARS: Final = 3_800
#: What a form's page must not have come from, if the browser says where it came from.
_FOREIGN: Final = frozenset({"cross-site", "same-site"})


class Visitor(NamedTuple):
    """A browser, and who it acts for."""

    token: str
    principal: Principal
    key_name: str | None
    is_new: bool
    """It had no token yet."""

    @property
    def proof(self) -> str:
        """What a form of this browser's pages carries."""
        return proof_of(self.token)


def proof_of(token: str) -> str:
    """What a form carries, to show that it was on a page of the browser with this token."""
    return _derive(token, "form")


def read_token(request: Request) -> tuple[str, bool]:
    """The token of a browser, and whether it is a new one."""
    token = request.cookies.get(COOKIE, "")
    is_known = len(token) == _TOKEN_CHARS and token.isascii()
    return (token, False) if is_known else (secrets.token_urlsafe(32), True)


async def identify(request: Request, callers: Callers, sign_ins: SignIns) -> Visitor:
    """Who sends a request; ``UnauthenticatedError`` if someone has to sign in first."""
    token, is_new = read_token(request)
    if not callers.keys_required:
        return Visitor(token, LOCAL, None, is_new)
    key = None if is_new else await to_thread.run_sync(sign_ins.find, token)
    if key is None:
        raise UnauthenticatedError("sign in with an API key; make one with: holdfast access create")
    return Visitor(token, key.principal, key.name, is_new)


def open_gate(request: Request, callers: Callers, principal: Principal) -> Gate:
    """What a visitor may reach: in the tenant that an operator chose, else in the key's own."""
    chosen = request.cookies.get(TENANT_COOKIE) if principal.is_operator else None
    return callers.gate(principal, {"x-holdfast-tenant": chosen} if chosen else {})


def check_form(request: Request, token: str, proof: object) -> None:
    """``ForbiddenError`` for a form that was not on a page of this browser's visit."""
    if request.headers.get("sec-fetch-site") in _FOREIGN:
        raise ForbiddenError("the form was sent by a page of another site; open the console and send it from there")
    if not isinstance(proof, str) or not hmac.compare_digest(proof.encode(), proof_of(token).encode()):
        raise ForbiddenError("the form is from another visit; open the page again and send it from there")


def set_cookie(request: Request, response: Response, name: str, value: str, seconds: int | None = None) -> None:
    """Have the browser keep something for the console alone, which no script reads; 0 seconds: no longer."""
    is_secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(name, value, max_age=seconds, path=PREFIX, httponly=True, samesite="strict", secure=is_secure)


# --- what is said after an action -------------------------------------------------------------------------------------


def write_note(token: str, note: Any) -> str:
    """A note to the page that comes next, under a seal."""
    content = base64.urlsafe_b64encode(json.dumps(note, ensure_ascii=False).encode()).decode()
    if len(content) > _NOTE_CHARS:  # a browser keeps no longer cookie; then what happened is said without a way back
        content = base64.urlsafe_b64encode(json.dumps({"said": note["said"][:500], "undo": None}).encode()).decode()
    return f"{content}.{_derive(token, content)}"


def read_note(request: Request, token: str) -> Any:
    """The note of the request before; ``None`` if there is none of ours."""
    content, _, seal = request.cookies.get(NOTE_COOKIE, "").partition(".")
    if not hmac.compare_digest(seal.encode(), _derive(token, content).encode()):
        return None
    return json.loads(base64.urlsafe_b64decode(content))


def keep_note(request: Request, response: Response, token: str, note: Any) -> None:
    """Have a note shown by the page that comes next."""
    set_cookie(request, response, NOTE_COOKIE, write_note(token, note), _NOTE_SECONDS)


def _derive(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), purpose.encode(), hashlib.sha256).hexdigest()
