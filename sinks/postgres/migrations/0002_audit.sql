-- Audit: every record of every topic, once, append-only. `sealed` is never stored: only its length and hash.
CREATE TABLE audit (
    topic        text   NOT NULL,
    partition    int    NOT NULL,
    kafka_offset bigint NOT NULL,
    log_ms       bigint NOT NULL,                   -- the log's time
    record       text,                              -- null: could not be decoded
    intent_id    text,
    key_text     text,                              -- only keys of a shape of ours
    size         int    NOT NULL,
    sanitised    int    NOT NULL DEFAULT 0,         -- characters jsonb cannot hold, replaced visibly
    body         jsonb,
    reason       text,                              -- why it could not be decoded
    pointer      text,
    value_hmac   text,
    PRIMARY KEY (topic, partition, kafka_offset)
);
CREATE INDEX audit_intent ON audit (intent_id, log_ms) WHERE intent_id IS NOT NULL;

CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- Positions in the same transaction as the rows.
CREATE TABLE audit_positions (
    topic       text   NOT NULL,
    partition   int    NOT NULL,
    next_offset bigint NOT NULL,
    PRIMARY KEY (topic, partition)
);

-- Who read what, and why.
CREATE TABLE access_log (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    who   text NOT NULL,
    why   text NOT NULL,
    what  text NOT NULL
);

CREATE FUNCTION audit_story(wanted text, who text, why text) RETURNS SETOF audit
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
BEGIN
    IF length(who) < 2 OR length(why) < 3 THEN
        RAISE EXCEPTION 'reading the audit needs who and why';
    END IF;
    INSERT INTO access_log (who, why, what) VALUES (who, why, 'story ' || wanted);
    RETURN QUERY SELECT * FROM audit WHERE intent_id = wanted ORDER BY log_ms, topic, partition, kafka_offset;
END $$;

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_reader') THEN
        CREATE ROLE backstop_reader NOLOGIN;
    END IF;
EXCEPTION WHEN insufficient_privilege OR duplicate_object THEN
    RAISE NOTICE 'role backstop_reader was not created; create it by hand to let people read';
END $$;
REVOKE ALL ON FUNCTION audit_story(text, text, text) FROM PUBLIC;
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION audit_story(text, text, text) TO backstop_reader;
EXCEPTION WHEN undefined_object THEN
    NULL;
END $$;
