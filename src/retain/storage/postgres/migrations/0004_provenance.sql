-- Provenance: who or what wrote a record, and the memories and messages that it was derived from.

ALTER TABLE records ADD COLUMN source text COLLATE "C";          -- NULL: its agent
ALTER TABLE records ADD COLUMN derived_from text COLLATE "C";    -- JSON: ids; NULL: none

CREATE INDEX records_by_source ON records (source, key) WHERE source IS NOT NULL;

-- What records say they were derived from, to be looked up the other way round. A row goes with its record.
CREATE TABLE derivations (
    subject   bigint NOT NULL,
    source_id text   COLLATE "C" NOT NULL,                       -- a memory or a message, there or not
    key       bigint NOT NULL,
    PRIMARY KEY (subject, source_id, key),
    FOREIGN KEY (subject, key) REFERENCES records (subject, key) ON DELETE CASCADE
);

CREATE INDEX derivations_by_key ON derivations (subject, key);
