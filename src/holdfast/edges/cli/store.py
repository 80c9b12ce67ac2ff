"""Opening the engine for one command. Its parts are imported here, when a command needs them, never for ``--help``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.edges.cli.options import DEFAULT_TENANT

if TYPE_CHECKING:
    from holdfast.engine import Holdfast, MemoryManager
    from holdfast.privacy.store_state import Purpose


#: Whether an empty store may take the place of one that was lost: ``holdfast --new-store``.
wants_new_store: ContextVar[bool] = ContextVar("wants_new_store", default=False)


@contextmanager
def open_engine(
    home: Path | None,
    url: str | None,
    tenant: str = DEFAULT_TENANT,
    *,
    quiet: bool = False,
    purpose: Purpose = "use",
) -> Iterator[Holdfast]:
    """The engine that the options and settings name, closed at the end; ``quiet`` keeps warnings off stderr."""
    from holdfast.engine import Holdfast  # noqa: PLC0415 - see above
    from holdfast.settings import read_settings  # noqa: PLC0415

    if wants_new_store.get():
        purpose = "new"
    settings = read_settings(os.environ, url=url, home=home)
    with _warnings_on_stderr(quiet=quiet), Holdfast(settings, tenant=tenant, purpose=purpose) as engine:
        yield engine


@contextmanager
def open_memory(
    home: Path | None,
    url: str | None,
    tenant: str,
    scope: tuple[str, str, str | None],
    *,
    quiet: bool = False,
) -> Iterator[MemoryManager]:
    """The memory of a user, agent and session."""
    with open_engine(home, url, tenant, quiet=quiet) as engine:
        yield engine.manager(*scope)


@contextmanager
def _warnings_on_stderr(*, quiet: bool) -> Iterator[None]:
    """Holdfast's warnings as lines on stderr. Missed latencies are left out: one command pays for a cold start."""
    log = logging.getLogger("holdfast")
    handler: logging.Handler = logging.NullHandler() if quiet else logging.StreamHandler()
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    handler.addFilter(lambda entry: not entry.name.startswith("holdfast.latency"))
    spread, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = spread
