"""Whether a database is the very one that agreed with the ledger of erasures before: the ``Witness`` of PostgreSQL.

A base backup or a snapshot is brought back by a server that starts anew. A dump is brought back by writing each row
again. So a row that its own transaction is written in, and the start of the server, are both as they were only if
nothing was brought back since.
"""

from __future__ import annotations

from holdfast.storage.postgres.database import PostgresDatabase


class PostgresWitness:
    """The ``Witness`` of PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    def confirm(self) -> None:
        if not self.is_unbroken():
            with self._database.alone("witness") as tx:
                tx.run("witness.confirm")

    def is_unbroken(self) -> bool:
        with self._database.read() as tx:
            return bool(tx.value("witness.is_unbroken"))
