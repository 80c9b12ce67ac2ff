"""One command while it runs: what it has opened, and how it talks to whoever started it.

What a command needs is imported and opened when it is first asked for, never for ``--help``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.core.errors import ClockError, ConfirmationNeededError
from holdfast.edges.cli.options import DEFAULT_TENANT
from holdfast.edges.cli.output import Part, error_console, write_parts

if TYPE_CHECKING:
    from holdfast.engine import Holdfast, MemoryManager
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.keys.keyring import Keyring
    from holdfast.privacy.keys.signatures import SigningKeys
    from holdfast.privacy.store_state import Purpose
    from holdfast.settings import Settings


class Call:
    """What a command was called with, beside its own options. What it opens is closed when it ends."""

    def __init__(self, stack: ExitStack, given: Mapping[str, Any], group: str = "") -> None:
        self._stack = stack
        self._given = given
        self.group = group
        """The name of the group that the command belongs to."""
        self.as_json: bool = given["as_json"]
        self.purpose: Purpose = "use"
        """What the store is opened for; ``--new-store`` goes before it."""
        self.quiet = False
        """Whether warnings are kept off stderr. With ``--json`` they always are."""
        self.only_reads = False
        """Whether no file is left behind where there was no store."""

    @property
    def tenant(self) -> str:
        """The tenant that was named."""
        return str(self._given.get("tenant", DEFAULT_TENANT))

    @property
    def is_new_store(self) -> bool:
        """Whether an empty store may take the place of one that was lost."""
        return bool(self._given["new_store"])

    @property
    def place(self) -> list[str]:
        """The options that name the same tenant and store again."""
        tenant = None if self.tenant == DEFAULT_TENANT else self.tenant
        named = {"--tenant": tenant, "--home": self.home, "--url": self.url}
        return [word for name, value in named.items() if value is not None for word in (name, str(value))]

    @property
    def home(self) -> Path | None:
        """The folder that was named."""
        return self._given["home"]  # type: ignore[no-any-return]

    @property
    def url(self) -> str | None:
        """The store that was named."""
        return self._given["url"]  # type: ignore[no-any-return]

    @property
    def scope(self) -> dict[str, Any]:
        """The parts of a scope that were named, by the engine's names for them."""
        return {f"{part}_id": self._given[part] for part in _PARTS if self._given.get(part) is not None}

    @cached_property
    def settings(self) -> Settings:
        """The settings that the options and the environment name."""
        from holdfast.settings import read_settings  # noqa: PLC0415 - see above

        return read_settings(os.environ, url=self.url, home=self.home)

    @cached_property
    def engine(self) -> Holdfast:
        """The engine of the tenant."""
        from holdfast.engine import Holdfast  # noqa: PLC0415 - see above

        self._stack.enter_context(_warnings_on_stderr(quiet=self.quiet or self.as_json))
        if self.only_reads and self.settings.url.startswith("sqlite:"):
            self._stack.callback(_remove_new_file, *_look_for_file(self.settings.url))
        purpose: Purpose = "new" if self.is_new_store else self.purpose
        return self._stack.enter_context(Holdfast(self.settings, tenant=self.tenant, purpose=purpose))

    @cached_property
    def memory(self) -> MemoryManager:
        """The memory of the user, agent and session that were named."""
        return self.engine.manager(self._given["user"], self._given["agent"], self._given["session"])

    @cached_property
    def state(self) -> ObjectStore:
        """Where keys and certificates lie; the memories are not opened."""
        from holdfast.storage.objects import open_keeping  # noqa: PLC0415 - see above

        return open_keeping(self.settings)

    @cached_property
    def keyring(self) -> Keyring:
        """The keys of the state store."""
        from holdfast.privacy.keys.keyring import open_keyring  # noqa: PLC0415 - see above

        return open_keyring(self.state, self.settings.master_key, self.settings.master_path())

    @cached_property
    def signing(self) -> SigningKeys:
        """The keys that certificates are signed with."""
        from holdfast.privacy.keys.signatures import SigningKeys  # noqa: PLC0415 - see above

        return SigningKeys(self.state, self.keyring)

    @property
    def has_keys(self) -> bool:
        """Whether the state store has any key. A folder that is missing has none, and is no error here."""
        return next(self.state.names("keys/"), None) is not None

    @property
    def is_watched(self) -> bool:
        """Whether anybody would see a progress bar."""
        return not self.as_json and error_console().is_terminal

    @property
    def can_ask(self) -> bool:
        """Whether somebody is there to answer a question."""
        return not self.as_json and sys.stdin.isatty() and sys.stderr.isatty()

    def ask(self, question: str, parts: Iterable[Part], *, otherwise: str) -> None:
        """Ask whether to go on, after showing what it comes to; refuse where nobody can be asked."""
        if not self.can_ask:
            raise ConfirmationNeededError(f"{otherwise}; nothing was changed", needs=("yes",))
        write_parts(error_console(), parts)
        typer.confirm(question, err=True, abort=True)

    def explain_wait(self) -> ClockError | None:
        """Why what is past its time waits in the recycle bin; ``None`` where the store believes the clock."""
        belief = self.engine.trust.look(self.engine.services.now())
        words = "its time in the recycle bin is over by this clock alone, so that it waits there"
        return None if belief.is_whole else ClockError(f"{words}: {belief.explain()}")

    @contextmanager
    def progress(self, doing: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A bar on stderr up to ``total`` (or without an end), gone afterwards; what is yielded advances it."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        hidden = not self.is_watched or total == 0
        with Progress(*columns, console=error_console(), transient=True, disable=hidden) as bar:
            task = bar.add_task(doing, total=total)
            yield lambda count: bar.advance(task, count)


def _look_for_file(url: str) -> tuple[Path, bool]:
    from holdfast.settings import sqlite_path  # noqa: PLC0415 - see above

    path = sqlite_path(url)
    return path, path.exists()


def _remove_new_file(path: Path, existed: bool) -> None:  # noqa: FBT001 - called when the command ends
    for suffix in () if existed else ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


_PARTS = ("user", "agent", "session", "memory")


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
