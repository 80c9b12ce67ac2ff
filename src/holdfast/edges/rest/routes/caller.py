"""``/v1/me``: who calls, and what they may do."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from holdfast.core.access import Right, told_rights
from holdfast.edges.rest.guard import Asking
from holdfast.edges.rest.models import Answer, example
from holdfast.edges.rest.operations import Routes, answer
from holdfast.edges.rest.rights import Reach

routes = Routes("access", "Who calls, and what they may do.")


class Me(Answer):
    """Who calls."""

    model_config = example(
        {
            "key_id": "0198c2d4-7b1a-7c3e-9f60-5d2a1c8e4b77",
            "tenant": "acme",
            "operator": False,
            "rights": ["read", "write"],
            "users": ["alice"],
            "agents": None,
        }
    )

    key_id: str | None = Field(description="`null`: the local caller, who needs no key.")
    tenant: str = Field(description="The tenant that is acted for.")
    operator: bool = Field(description="May act for any tenant, and for the whole store.")
    rights: list[str]
    users: list[str] | None = Field(description="Bound to these users; `null`: to none.")
    agents: list[str] | None = Field(description="Bound to these agents; `null`: to none.")


@routes.add("GET", "/me", Right.READ, Reach.CALLER, answer=Me)
def get_me(caller: Asking) -> Response:
    """Say who calls, and what they may do."""
    principal = caller.gate.principal
    held = [right for right in Right if principal.allows(right)]
    return answer(
        {
            "key_id": principal.key_id,
            "tenant": caller.gate.tenant_id,
            "operator": principal.is_operator,
            "rights": told_rights(held),
            "users": None if principal.users is None else sorted(principal.users),
            "agents": None if principal.agents is None else sorted(principal.agents),
        }
    )
