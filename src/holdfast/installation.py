"""Which version of Holdfast this is, and how it gets an extra or a newer one: from an index, a checkout or a URL."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast.core.errors import MissingExtraError

VERSION: Final = "0.1.0"
SOFTWARE: Final = f"holdfast {VERSION}"


def is_newer(version: str) -> bool:
    """Whether a version of Holdfast is newer than this one."""
    return _parts(version) > _parts(VERSION)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


_NAME = "holdfast"


def missing_extra(what: str, extra: str) -> MissingExtraError:
    """The error to raise where something needs an extra that is not installed."""
    return MissingExtraError(f"{what} needs the extra {extra!r}; install it with: {install_command(extra)}")


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, wherever it came from."""
    source = _source()
    if source is None:
        return f"pip install '{_NAME}[{extra}]'"
    if _is_editable(source):
        return f"pip install -e '{_folder(source)}[{extra}]'"
    return f"pip install '{_NAME}[{extra}] @ {_url(source)}'"


def upgrade_command() -> str:
    """The command that brings this installation to the newest version."""
    source = _source()
    if source is None:
        return f"pip install --upgrade {_NAME}"
    if _is_editable(source):
        return f"git -C '{_folder(source)}' pull"
    return f"pip install --upgrade '{_NAME} @ {_url(source)}'"


def _source() -> dict[str, Any] | None:
    """What pip noted of a checkout or URL that it installed from; nothing, if that was a package index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - for an error only

    try:
        noted = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return json.loads(noted) if noted else None


def _is_editable(source: dict[str, Any]) -> bool:
    return bool(source.get("dir_info", {}).get("editable"))


def _folder(source: dict[str, Any]) -> str:
    return unquote(urlsplit(source["url"]).path)


def _url(source: dict[str, Any]) -> str:
    system = source.get("vcs_info", {}).get("vcs")
    return f"{system}+{source['url']}" if system else str(source["url"])
