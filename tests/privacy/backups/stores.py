"""Stores to back up and to restore into, and how two of them are compared."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast import Holdfast
from holdfast.backups.catalog import Catalog
from holdfast.backups.contents import Snapshot
from holdfast.backups.create import mark_of
from holdfast.backups.layout import STORE_KEY, Doc
from holdfast.core.records import DURABLE
from holdfast.storage.catalog import TABLES, Backup
from holdfast.storage.relational.database import Row
from holdfast.storage.transfer.stores import DatabaseRows
from homes import Homes

#: What a restore itself changes: it seals the audit chain, enrols the jobs, and notes how far time has come.
_OF_THE_RESTORE = {"audit_checkpoints", "sealed", "seen"}
#: What has to be there when a machine is lost: the backups, the keys with their master key, the ledger of erasures.
_KEPT = ("backups", "keys", "ledger", "erased", "certificates")


def catalog_of(holdfast: Holdfast) -> Catalog:
    """The backups of an engine, beneath its service."""
    return holdfast.backups._catalog


def rows_of(holdfast: Holdfast) -> dict[str, list[Row]]:
    """Every row that a whole restore is to bring back, by table, in canonical form."""
    with DatabaseRows(holdfast.database).read() as reader:
        found = {
            table.name: sorted(reader.rows(table.name), key=repr)
            for table in TABLES
            if table.backup is not Backup.NONE and table.name not in _OF_THE_RESTORE
        }
    found["jobs"] = [(*row[:5], *(None for _ in row[5:])) for row in found["jobs"]]  # results are not kept
    return found


def digests(holdfast: Holdfast, backup_id: str) -> dict[tuple[str, str], str]:
    """What each document of a backup says, in short."""
    return {(doc.sort, doc.mark): doc.digest for doc in docs(holdfast, backup_id)}


def read_digests(holdfast: Holdfast) -> dict[tuple[str, str], str]:
    """What the documents of a backup would say that copied everything."""
    found: dict[tuple[str, str], str] = {}
    store_key = holdfast.keyring.get(STORE_KEY)
    with DatabaseRows(holdfast.database).read() as reader:
        snapshot = Snapshot(reader, frozenset(DURABLE))
        marks = {user.alias: mark_of(store_key, user.subject) for users in snapshot.users() for user in users}
    with DatabaseRows(holdfast.database).read() as reader:
        for (sort, key), digest in Snapshot(reader, frozenset(DURABLE)).digests().items():
            found[sort, marks.get(key, key)] = digest
    return found


def docs(holdfast: Holdfast, backup_id: str) -> list[Doc]:
    catalog = catalog_of(holdfast)
    return list(catalog.docs(catalog.get(backup_id)))


def said(holdfast: Holdfast, backup_id: str) -> str:
    """All that a backup says to whoever has the keys, in one text."""
    catalog = catalog_of(holdfast)
    manifest = catalog.get(backup_id)
    return repr([frames for _, frames in catalog.contents(manifest, catalog.docs(manifest))])


def objects(holdfast: Holdfast) -> dict[str, bytes]:
    """Every object where the backups are."""
    store = catalog_of(holdfast).objects
    return {name: store.get(name) for name in store.names()}


def check_all(holdfast: Holdfast, *, restore: bool = False) -> list[str]:
    """Verify every backup that is listed; their ids."""
    listed = [one.id for one in holdfast.backups.list()]
    for backup_id in listed:
        check = holdfast.backups.verify(backup_id, restore=restore)
        assert check, check.problems
    return listed


def lose_machine(source: Path, homes: Homes, name: str = "elsewhere", *, kept: tuple[str, ...] = _KEPT) -> Path:
    """Another home, with what has to be there of a machine that was lost, and nothing else."""
    home = homes.new(name)
    for folder in kept:
        if (source / folder).exists():
            shutil.copytree(source / folder, home / folder)
    return home
