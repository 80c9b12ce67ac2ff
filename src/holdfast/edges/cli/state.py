"""The state store for one command: keys and certificates, without opening the memories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast.ports.objects import ObjectStore
    from holdfast.privacy.keys.keyring import Keyring
    from holdfast.privacy.keys.signing import SigningKeys
    from holdfast.settings import Settings


class State(NamedTuple):
    """What is kept outside of the data."""

    settings: Settings
    objects: ObjectStore
    keyring: Keyring
    signing: SigningKeys


def open_state(home: Path | None) -> State:
    """The state store that the options and settings name."""
    from holdfast.privacy.keys.keyring import open_keyring  # noqa: PLC0415 - not needed for --help
    from holdfast.privacy.keys.signing import SigningKeys  # noqa: PLC0415
    from holdfast.settings import read_settings  # noqa: PLC0415
    from holdfast.storage.objects import open_keeping  # noqa: PLC0415

    settings = read_settings(os.environ, home=home)
    objects = open_keeping(settings)
    keyring = open_keyring(objects, settings.master_key, settings.master_path())
    return State(settings, objects, keyring, SigningKeys(objects, keyring))
