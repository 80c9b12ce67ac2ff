-- Rules that select records by what their metadata say: what the policy of the memory domain becomes.

ALTER TABLE rules ADD COLUMN selection text COLLATE "C" NOT NULL DEFAULT '';     -- JSON; '' is none
ALTER TABLE rules DROP CONSTRAINT rules_tenant_kind_user_id_agent_id_session_id_memory_id_key;
ALTER TABLE rules ADD CONSTRAINT rules_once
    UNIQUE (tenant, kind, user_id, agent_id, session_id, memory_id, selection);
