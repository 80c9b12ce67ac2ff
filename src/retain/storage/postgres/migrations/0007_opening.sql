-- All that a write asks before it begins, as a function: its plan is made once for each connection, and not with each
-- write that is begun by asking it.

CREATE FUNCTION opening(
    whose text, whose_tenant text, whose_user text, of_kind bigint, agents text,
    OUT number bigint, OUT seq bigint, OUT floor bigint, OUT next bigint, OUT memories bigint, OUT bytes bigint,
    OUT their_memories bigint, OUT their_bytes bigint, OUT own_memories bigint, OUT own_bytes bigint,
    OUT version bigint, OUT is_held boolean, OUT is_removed boolean
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT known.no, coalesce(scopes.seq, 0), coalesce(scopes.floor, 0), coalesce(scopes.next, 0),
           coalesce(scopes.memories, 0), coalesce(scopes.bytes, 0), everyone.max_memories, everyone.max_bytes, own.max_memories, own.max_bytes,
           coalesce((SELECT books.version FROM books WHERE tenant = whose_tenant), 0),
           EXISTS (SELECT 1 FROM holds
                   WHERE tenant = whose_tenant AND released_at IS NULL AND (user_id IS NULL OR user_id = whose_user)),
           EXISTS (SELECT 1 FROM registry
                   WHERE tenant = whose_tenant AND sort = 'agent' AND state != 'active'
                     AND id = ANY (ARRAY(SELECT jsonb_array_elements_text(agents::jsonb))))
    INTO number, seq, floor, next, memories, bytes, their_memories, their_bytes, own_memories, own_bytes, version,
         is_held, is_removed
    FROM (SELECT (SELECT no FROM subjects WHERE subject = whose) AS no) AS known
    LEFT JOIN scopes ON scopes.subject = known.no AND scopes.scope = (known.no << 3 | of_kind)
    LEFT JOIN quotas AS everyone ON everyone.tenant = whose_tenant AND everyone.user_id = '' AND everyone.kind = of_kind
    LEFT JOIN quotas AS own ON own.tenant = whose_tenant AND own.user_id = whose_user AND own.kind = of_kind;
END
$$;

-- Takes a subject's turn, and goes on only if a write is opened by what it was expected to be.
CREATE FUNCTION expect_opening(
    gate bigint, whose text, whose_tenant text, whose_user text, of_kind bigint, agents text, expected text
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM take_turn(gate, whose);
    IF expected IS DISTINCT FROM (
        SELECT actual::text FROM opening(whose, whose_tenant, whose_user, of_kind, agents) AS actual
    ) THEN
        RAISE EXCEPTION 'what a write relied on has changed' USING ERRCODE = 'RT001';
    END IF;
END
$$;
