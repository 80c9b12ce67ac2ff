"""Object stores: where cold archives and backups are kept. A folder, or a bucket of S3, Azure or Google Cloud."""

from __future__ import annotations

from retain.ports import ObjectStore


def open_objects(url: str) -> ObjectStore:
    """The object store at a URL; nothing is read or written yet.

    ``file:///absolute/folder``, ``s3://bucket/prefix``, ``az://container/prefix`` (or ``azure://``, ``abfs://``) or
    ``gs://bucket/prefix``. Credentials come from the environment (``AWS_*``, ``AZURE_*``, ``GOOGLE_*``).
    ``InvalidSettingsError`` for anything else.
    """
    from retain.storage.objects.places import read_place  # noqa: PLC0415 - programs without archives need none of it

    place = read_place(url)
    if place.scheme == "file":
        from retain.storage.objects.local import LocalObjects  # noqa: PLC0415

        return LocalObjects(place.folder)
    from retain.storage.objects.remote import RemoteObjects  # noqa: PLC0415

    return RemoteObjects(place)


__all__ = ["ObjectStore", "open_objects"]
