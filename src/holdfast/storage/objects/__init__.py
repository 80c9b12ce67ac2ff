"""Object stores: where cold archives and backups are kept. A folder, or a bucket of S3, Azure or Google Cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.ports.objects import ObjectStore
    from holdfast.settings import Settings


def open_objects(url: str, called: str = "its URL") -> ObjectStore:
    """The object store at a URL; nothing is read or written yet.

    ``file:///absolute/folder``, ``s3://bucket/prefix``, ``az://container/prefix`` (or ``azure://``, ``abfs://``) or
    ``gs://bucket/prefix``. Credentials come from the environment (``AWS_*``, ``AZURE_*``, ``GOOGLE_*``).
    ``InvalidSettingsError`` for anything else. ``called`` is the name of the setting with the URL in messages.
    """
    from holdfast.storage.objects.urls import read_place  # noqa: PLC0415 - programs without archives need none of it

    place = read_place(url)
    if place.scheme == "file":
        from holdfast.storage.objects.local import LocalObjects  # noqa: PLC0415

        return LocalObjects(place.folder)
    from holdfast.storage.objects.remote import RemoteObjects  # noqa: PLC0415

    return RemoteObjects(place, called=called)


def open_cold(settings: Settings) -> ObjectStore:
    """Cold storage, as it is: what belongs to a user is sealed there."""
    return open_objects(settings.cold_url(), "HOLDFAST_ARCHIVE_URL")


def open_keeping(settings: Settings) -> ObjectStore:
    """Where keys and the ledger of erasures are."""
    return open_objects(settings.keeping_url(), "HOLDFAST_STATE_URL")


def open_backups(settings: Settings) -> ObjectStore:
    """Where backups go."""
    return open_objects(settings.backups_url(), "HOLDFAST_BACKUP_URL")
