-- Provenance: who or what wrote a record, and the memories and messages that it was derived from.

ALTER TABLE records ADD COLUMN source TEXT;              -- NULL: its agent
ALTER TABLE records ADD COLUMN derived_from TEXT;        -- JSON: ids; NULL: none

CREATE INDEX records_by_source ON records (source) WHERE source IS NOT NULL;

-- What records say they were derived from, to be looked up the other way round. A row goes with its record.
CREATE TABLE derivations (
    subject   INTEGER NOT NULL,
    source_id TEXT    NOT NULL,                          -- a memory or a message, there or not
    key       INTEGER NOT NULL REFERENCES records (key) ON DELETE CASCADE,
    PRIMARY KEY (subject, source_id, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX derivations_by_key ON derivations (key);
