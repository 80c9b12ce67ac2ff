-- Scopes with too many records to be held in memory are searched here. Rows are made from records, for records of such
-- scopes only, and go with their record.

CREATE TABLE passages (
    subject    bigint  NOT NULL,
    key        bigint  NOT NULL,                     -- the record's
    place      integer NOT NULL,                     -- which of its passages
    length     real,                                 -- words of the whole record; at place 0, with session and id
    scope      bigint  NOT NULL,                     -- subject number << 3 | kind
    model      bigint,                               -- NULL while there is no vector
    session_id text    COLLATE "C",
    id         text    COLLATE "C",
    words      bigint[],                             -- the record's terms (at place 0) and fields, as numbers; NULL: stale
    vector     halfvec,
    PRIMARY KEY (subject, key, place),
    FOREIGN KEY (subject, key) REFERENCES records (subject, key) ON DELETE CASCADE
);

-- A posting is found in the index itself, never in a list of what is yet to be added to it.
CREATE INDEX passages_by_word ON passages USING gin (words) WITH (fastupdate = off);
CREATE INDEX passages_by_session ON passages (subject, scope, session_id, id) WHERE session_id IS NOT NULL;
CREATE INDEX passages_stale ON passages (subject, scope, key) WHERE place = 0 AND words IS NULL;

-- How far a scope's records have been filled in: those with a count below have their rows.
CREATE TABLE fillings (
    subject bigint NOT NULL,
    scope   bigint NOT NULL,
    filled  bigint NOT NULL,
    PRIMARY KEY (subject, scope)
) WITH (fillfactor = 70);
