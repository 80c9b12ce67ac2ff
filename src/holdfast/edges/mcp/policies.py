"""What the tools of retention domains take and give."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from holdfast.core.domains import FIELDS
from holdfast.edges.mcp.models import Inputs, Object, Output, Unpacked

Domain = Literal["memory", "rag"]
_DOMAIN: Final = Field(description="Which policy: of memories, or of documents for retrieval (rag).")
MAX_RESOURCES: Final = 20_000


class NoInputs(Inputs):
    """Nothing."""


def _schema(fields: tuple[str, ...]) -> dict[str, Any]:
    """What clients are told of the fields of a policy. Values are brought into bounds where policies are made, and
    nowhere else: nothing is refused or changed here.
    """
    said: dict[str, dict[str, Any]] = {
        "older_than_days": {"type": "number", "description": "Days after which a resource may go; 1 to 3,650."},
        "source_types": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Which source types it is for: context, action, thought.",
        },
        "keep_session_ids": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Sessions of which nothing ever goes.",
        },
        "keep_context_ids": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Contexts of which nothing ever goes.",
        },
        "limit": {"type": "number", "description": "How many may go at once; 1 to 20,000."},
        "vacuum": {"type": "boolean", "description": "Whether space is given back afterwards."},
        "auto_gc": {"type": "boolean", "description": "Whether sweeps carry the policy out (memory only)."},
    }
    return {
        "type": "object",
        "properties": {field: said[field] for field in fields},
        "additionalProperties": False,
    }


#: Fields of a policy, as a caller gives them.
PolicyChanges = Annotated[dict[str, Any], Unpacked, WithJsonSchema(_schema(FIELDS))]


class ConfigurePolicy(Inputs):
    """Which policy to change, and how."""

    domain: Annotated[Domain, _DOMAIN]
    config: Annotated[
        PolicyChanges,
        Field(description="The fields to change, such as {'older_than_days': 60}; those left out stay as they are."),
    ]
    confirm: Annotated[bool, Field(description="Whether the user has agreed that memories go earlier than before.")] = (
        False
    )


class GetPolicy(Inputs):
    """Which policy to read."""

    domain: Annotated[Domain, _DOMAIN]


#: A resource as its owner describes it; fields of its own are carried along, and nothing in it is changed.
Item = Annotated[
    dict[str, Any],
    Unpacked,
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "id": {"description": "What it is known by."},
                "source_type": {"type": "string", "description": "context, action or thought; others are protected."},
                "created_at": {"description": "When it was made: ISO 8601 with an offset, or seconds since 1970."},
                "session_id": {"description": "The session that it belongs to."},
                "context_id": {"description": "The number of the context that it belongs to."},
            },
        }
    ),
]
Items = Annotated[
    list[Item],
    Unpacked,
    Field(max_length=MAX_RESOURCES, description="The resources, each an object."),
]


class ApplyPolicy(Inputs):
    """What to sort."""

    domain: Annotated[Domain, _DOMAIN]
    resources: Items
    options: Annotated[
        Object | None,
        Field(description="Fields of the policy that are to differ this once, such as {'older_than_days': 7}."),
    ] = None


class CollectionArguments(Inputs):
    """What a garbage collection was called with."""

    domain: Annotated[Domain, _DOMAIN]
    raw_args: Annotated[Object | None, Field(description="The arguments as the caller gave them: {'limit': 100}.")] = (
        None
    )
    validated_args: Annotated[
        Object | None, Field(description="What checks made of them, and whatever else is to be handed on.")
    ] = None


class ArchiveResources(Inputs):
    """What to archive."""

    domain: Annotated[Domain, _DOMAIN]
    resources: Items
    options: Annotated[Object | None, Field(description="A note for the manifest: {'note': '…'}.")] = None


class Policy(Output):
    """A retention policy."""

    older_than_days: int
    source_types: list[str]
    keep_session_ids: list[str]
    keep_context_ids: list[int]
    limit: int
    vacuum: bool
    auto_gc: bool


class CollectionParameters(Output):
    """A value for every parameter of a garbage collection; what else was validated is there as it was given."""

    model_config = ConfigDict(extra="allow")

    older_than_days: int
    source_types: list[str]
    keep_session_ids: list[str]
    keep_context_ids: list[int]
    limit: int
    vacuum: bool


class Configured(Output):
    """A policy that was changed."""

    success: bool
    domain: str
    policy: Policy
    updated_at: str


class Counts(Output):
    """How many there are."""

    eligible: int
    protected: int
    total: int


class Protected(Output):
    """A resource that may not go, and why."""

    resource: dict[str, Any]
    reason: str


class Classified(Output):
    """Resources, by whether they may go."""

    success: bool
    domain: str
    cutoff_date: str
    policy_applied: Policy
    eligible: list[dict[str, Any]]
    protected: list[Protected]
    counts: Counts


class Archived(Output):
    """An archive that was made."""

    success: bool
    domain: str
    archive_id: str
    manifest_path: Annotated[
        str, Field(description="A path on the server's machine, or the URL of an object in a bucket.")
    ]
    resource_count: int
    total_size_bytes: int


class AllPolicies(Output):
    """The policies of all domains."""

    version: int
    updated_at: Annotated[str | None, Field(description="When one of them was last changed; null: never.")]
    memory: Policy
    rag: Policy
