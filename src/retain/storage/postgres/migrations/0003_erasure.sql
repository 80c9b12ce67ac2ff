-- Erasure: subjects are found by their pseudonyms, and a store knows how far it has been held against the ledger.

CREATE INDEX subjects_by_alias ON subjects (alias);

-- The last entry of the ledger of erasures that this store has been held against.
CREATE TABLE ledger_seen (
    one  bigint PRIMARY KEY CHECK (one = 1),
    no   bigint NOT NULL,
    hash text   COLLATE "C" NOT NULL
);
