"""The state store for one command: keys and certificates, without opening the memories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from retain.ports import ObjectStore
    from retain.privacy.keyring import Keyring
    from retain.privacy.signing import SigningKeys
    from retain.settings import Settings


class State(NamedTuple):
    """What is kept outside of the data."""

    settings: Settings
    objects: ObjectStore
    keyring: Keyring
    signing: SigningKeys


def open_state(home: Path | None) -> State:
    """The state store that the options and settings name."""
    from retain.privacy.keyring import open_keyring  # noqa: PLC0415 - not needed for --help
    from retain.privacy.signing import SigningKeys  # noqa: PLC0415
    from retain.settings import read_settings  # noqa: PLC0415
    from retain.storage.objects import open_keeping  # noqa: PLC0415

    settings = read_settings(os.environ, home=home)
    objects = open_keeping(settings)
    keyring = open_keyring(objects, settings.master_key, settings.master_path())
    return State(settings, objects, keyring, SigningKeys(objects, keyring))
