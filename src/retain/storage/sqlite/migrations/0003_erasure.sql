-- Erasure: subjects are found by their pseudonyms, and a store knows how far it has been held against the ledger.

CREATE INDEX subjects_by_alias ON subjects (alias);
CREATE INDEX sessions_of_subject ON sessions (subject);

-- The last entry of the ledger of erasures that this store has been held against.
CREATE TABLE ledger_seen (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    no   INTEGER NOT NULL,
    hash TEXT    NOT NULL
) STRICT;
