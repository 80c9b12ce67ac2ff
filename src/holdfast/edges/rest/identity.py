"""Who calls: the key that came with a request, and what it may reach."""

from __future__ import annotations

from typing import Final

from fastapi import Request

from holdfast.core.access import LOCAL, Principal
from holdfast.core.errors import ForbiddenError, InvalidScopeError, UnauthenticatedError
from holdfast.edges.access.callers import Callers
from holdfast.edges.access.gate import Gate
from holdfast.edges.rest.rights import Caller, Needs
from holdfast.engine import Holdfast

TENANT_HEADER: Final = "X-Holdfast-Tenant"
_MOST_SECRET_CHARS: Final = 256


class Identity:
    """Tells who calls. Without ``keys_required``, a caller without a key is the local one, who may do everything."""

    def __init__(self, holdfast: Holdfast, callers: Callers, *, keys_required: bool) -> None:
        self._holdfast = holdfast
        self._callers = callers
        self._keys_required = keys_required

    async def caller(self, request: Request, needs: Needs) -> Caller:
        """Who calls, at a route with these needs; ``ForbiddenError`` where the right is missing, before anything of
        the request is read.
        """
        principal = await self._principal(request)
        gate = Gate(self._holdfast, principal, tenant_of(request))
        if not principal.allows(needs.right):
            raise ForbiddenError(f"this needs the right {needs.right.value!r}, which the key does not have")
        return Caller(gate, needs)

    async def _principal(self, request: Request) -> Principal:
        secret = secret_of(request)
        if secret is None:
            if self._keys_required:
                raise UnauthenticatedError("an API key is needed: send it as Authorization: Bearer <key>")
            return LOCAL
        if len(secret) > _MOST_SECRET_CHARS:
            raise UnauthenticatedError("this is no API key: it is too long")
        return await self._callers.identify(secret)


def secret_of(request: Request) -> str | None:
    """The key that came with a request, as it stands. Two that differ are refused: one of them is a mistake."""
    given = request.headers.get("Authorization")
    own = request.headers.get("X-API-Key")
    if given is None:
        return own
    scheme, _, secret = given.partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthenticatedError("Authorization must be: Bearer <key>")
    if own is not None and own != secret.strip():
        raise UnauthenticatedError("Authorization and X-API-Key name two keys; send one of them")
    return secret.strip()


def tenant_of(request: Request) -> str | None:
    """The tenant that a request names. Headers come as Latin-1; a name in them is UTF-8."""
    named = request.headers.get(TENANT_HEADER)
    try:
        return None if named is None else named.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise InvalidScopeError(f"{TENANT_HEADER} is not UTF-8") from None
