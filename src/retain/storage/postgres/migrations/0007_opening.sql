-- All that a write asks before it begins, as a function: its plans are made once for each connection, and each of them names
-- the subject that it is about.

CREATE FUNCTION opening(
    whose text, whose_tenant text, whose_user text, of_kind bigint, agents text,
    OUT number bigint, OUT seq bigint, OUT floor bigint, OUT next bigint, OUT memories bigint, OUT bytes bigint,
    OUT their_memories bigint, OUT their_bytes bigint, OUT own_memories bigint, OUT own_bytes bigint,
    OUT version bigint, OUT is_held boolean, OUT is_removed boolean
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT no INTO number FROM subjects WHERE subject = whose;
    SELECT scopes.seq, scopes.floor, scopes.next, scopes.memories, scopes.bytes INTO seq, floor, next, memories, bytes
    FROM scopes WHERE scopes.subject = number AND scopes.scope = (number << 3 | of_kind);
    IF NOT FOUND THEN
        seq := 0; floor := 0; next := 0; memories := 0; bytes := 0;
    END IF;
    SELECT everyone.max_memories, everyone.max_bytes, own.max_memories, own.max_bytes,
           coalesce((SELECT books.version FROM books WHERE tenant = whose_tenant), 0),
           EXISTS (SELECT 1 FROM holds
                   WHERE tenant = whose_tenant AND released_at IS NULL AND (user_id IS NULL OR user_id = whose_user)),
           EXISTS (SELECT 1 FROM registry
                   WHERE tenant = whose_tenant AND sort = 'agent' AND state != 'active'
                     AND id = ANY (ARRAY(SELECT jsonb_array_elements_text(agents::jsonb))))
    INTO their_memories, their_bytes, own_memories, own_bytes, version, is_held, is_removed
    FROM (SELECT 1 AS one) AS look
    LEFT JOIN quotas AS everyone ON everyone.tenant = whose_tenant AND everyone.user_id = '' AND everyone.kind = of_kind
    LEFT JOIN quotas AS own ON own.tenant = whose_tenant AND own.user_id = whose_user AND own.kind = of_kind;
END
$$;

-- Takes a subject's turn; whether a write is then opened by what it was expected to be.
CREATE FUNCTION expect_opening(
    gate bigint, whose text, whose_tenant text, whose_user text, of_kind bigint, agents text, expected text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM take_turn(gate, whose);
    RETURN expected IS NOT DISTINCT FROM (
        SELECT actual::text FROM opening(whose, whose_tenant, whose_user, of_kind, agents) AS actual
    );
END
$$;

-- Adds a record and counts it, if the write is opened by what it was expected to be; otherwise nothing is done.
CREATE FUNCTION add_relying(
    gate bigint, whose text, whose_tenant text, whose_user text, of_kind bigint, agents text, expected text,
    record_key bigint, record_subject bigint, record_kind bigint, record_profile bigint,
    record_id text, record_agent_id text, record_session_id text, record_name text,
    record_created_at bigint, record_updated_at bigint, record_dated_at bigint, record_aged_from bigint,
    record_size bigint, record_model bigint, record_vectors bytea, record_terms bytea,
    record_metadata text, record_content bytea, record_body bytea, record_source text,
    record_derived_from text,
    counted_scope bigint, counted_seq bigint, counted_floor bigint, counted_next bigint, counted_memories bigint,
    counted_bytes bigint
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT expect_opening(gate, whose, whose_tenant, whose_user, of_kind, agents, expected) THEN
        RETURN false;
    END IF;
    INSERT INTO records (key, subject, kind, profile, id, state, version, agent_id, session_id, name, created_at,
                         updated_at, dated_at, aged_from, size, model, vectors, terms, metadata, content, body, source,
                         derived_from)
    VALUES (record_key, record_subject, record_kind, record_profile, record_id, 'active', 1, record_agent_id,
            record_session_id, record_name, record_created_at, record_updated_at, record_dated_at, record_aged_from,
            record_size, record_model, record_vectors, record_terms, record_metadata, record_content, record_body,
            record_source, record_derived_from);
    UPDATE scopes
    SET seq = counted_seq, floor = counted_floor, next = counted_next, memories = counted_memories, bytes = counted_bytes
    WHERE scopes.subject = record_subject AND scopes.scope = counted_scope;
    RETURN true;
END
$$;
