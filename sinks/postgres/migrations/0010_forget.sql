-- Forgetting a person: what links records to an address or a number is taken out of them; that they were, when, and what
-- was decided stays. One row per intent, so that nobody takes the gap for a loss.
CREATE TABLE forgotten (
    intent_id text        PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    rows      int         NOT NULL
);

-- Finding a person's requests without reading the whole audit. Every other row is found by its intent.
CREATE INDEX audit_email ON audit ((body ->> 'email_fingerprint')) WHERE record = 'intent_requested';
CREATE INDEX audit_sms ON audit ((body ->> 'sms_fingerprint')) WHERE record = 'intent_requested';

-- As before for everybody but `forget_intents`, which says so for its own transaction. This keeps out mistakes, not the
-- owner of the table: the owner could drop the trigger.
CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'audit' AND TG_OP = 'UPDATE' AND current_setting('backstop.forgetting', true) = 'on' THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'the audit is append-only';
END $$;

-- Which intents were about these destinations; logged. `ended`: the machine closed it, or the guard knows that it is over.
CREATE FUNCTION person_intents(wanted text[], topics text[], who text, why text) RETURNS TABLE (
    intent_id text, requested_ms bigint, expiry_ms bigint, ended boolean, is_forgotten boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF length(who) < 2 OR length(why) < 3 THEN
        RAISE EXCEPTION 'reading the audit needs who and why';
    END IF;
    INSERT INTO access_log (who, why, what) VALUES (who, why, 'intents of ' || array_to_string(wanted, ' '));
    RETURN QUERY
    SELECT a.intent_id, min((a.body ->> 'requested_at_ms')::bigint), max((a.body ->> 'expiry_ms')::bigint),
           EXISTS (SELECT FROM closed AS c WHERE c.intent_id = a.intent_id)
           OR EXISTS (SELECT FROM audit AS d WHERE d.intent_id = a.intent_id AND d.topic = ANY(topics)
                      AND d.record = 'decision' AND d.body ->> 'next_phase' = 'closed'),
           EXISTS (SELECT FROM forgotten AS f WHERE f.intent_id = a.intent_id)
    FROM audit AS a
    WHERE a.record = 'intent_requested' AND a.topic = ANY(topics)
      AND (a.body ->> 'email_fingerprint' = ANY(wanted) OR a.body ->> 'sms_fingerprint' = ANY(wanted))
    GROUP BY a.intent_id ORDER BY 2, 1;
END $$;

-- Take out of the rows of these intents whatever leads to a person: one transaction, safe to repeat; logged. Decisions
-- hold nothing of the kind and keep their bytes, so their chain can still be verified. A claim keeps its fingerprint
-- while the intent could still be sent.
CREATE FUNCTION forget_intents(intents text[], topics text[], leads text[], now_ms bigint, who text, why text)
RETURNS TABLE (audited bigint, claimed bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    one text;
    changed bigint;
BEGIN
    IF length(who) < 2 OR length(why) < 3 THEN
        RAISE EXCEPTION 'forgetting needs who and why';
    END IF;
    PERFORM set_config('backstop.forgetting', 'on', true);
    audited := 0;
    FOREACH one IN ARRAY intents LOOP
        UPDATE audit AS a SET body = a.body - leads, note = 'forgotten',
               key_text = CASE WHEN a.key_text = a.intent_id THEN a.key_text END
        WHERE a.intent_id = one AND a.topic = ANY(topics) AND a.body ?| leads;
        GET DIAGNOSTICS changed = ROW_COUNT;
        audited := audited + changed;
        CONTINUE WHEN changed = 0;
        INSERT INTO access_log (who, why, what) VALUES (who, why, 'forget ' || one);
        INSERT INTO forgotten AS f (intent_id, rows) VALUES (one, changed)
        ON CONFLICT ON CONSTRAINT forgotten_pkey DO UPDATE SET rows = f.rows + excluded.rows;
    END LOOP;
    UPDATE claims AS c SET fingerprint = 'forgotten', result = c.result - leads, country = NULL,
           spend_scopes = NULL, is_counted = false  -- what was counted stays counted
    WHERE c.intent_id = ANY(intents) AND c.expiry_ms < now_ms AND c.fingerprint <> 'forgotten';
    GET DIAGNOSTICS claimed = ROW_COUNT;
    UPDATE late_results AS l SET result = l.result - leads WHERE l.intent_id = ANY(intents) AND l.result ?| leads;
    PERFORM set_config('backstop.forgetting', 'off', true);
    RETURN NEXT;
END $$;

-- What was forgotten a short while ago: records that were on their way then name these intents again, and their claims
-- may have ended since. They cannot be found by the person any more.
CREATE FUNCTION forgotten_lately() RETURNS TABLE (intent_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
    SELECT f.intent_id FROM forgotten AS f WHERE f.at > clock_timestamp() - interval '14 days' ORDER BY f.at;
$$;

-- The consents of these destinations. Whoever answered STOP stays on the list, and only a later consent opens the way.
CREATE FUNCTION forget_consents(wanted text[], who text, why text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    changed bigint;
BEGIN
    IF length(who) < 2 OR length(why) < 3 THEN
        RAISE EXCEPTION 'forgetting needs who and why';
    END IF;
    INSERT INTO access_log (who, why, what) VALUES (who, why, 'forget consents of ' || array_to_string(wanted, ' '));
    DELETE FROM consents AS c WHERE c.fingerprint = ANY(wanted);
    GET DIAGNOSTICS changed = ROW_COUNT;
    RETURN changed;
END $$;

REVOKE ALL ON FUNCTION person_intents(text[], text[], text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION forget_intents(text[], text[], text[], bigint, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION forget_consents(text[], text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION forgotten_lately() FROM PUBLIC;
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'backstop_eraser') THEN
        CREATE ROLE backstop_eraser NOLOGIN;
    END IF;
EXCEPTION WHEN insufficient_privilege OR duplicate_object THEN
    RAISE NOTICE 'role backstop_eraser was not created; create it by hand to let people erase';
END $$;
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION person_intents(text[], text[], text, text) TO backstop_eraser, backstop_reader;
    GRANT EXECUTE ON FUNCTION forget_intents(text[], text[], text[], bigint, text, text) TO backstop_eraser;
    GRANT EXECUTE ON FUNCTION forget_consents(text[], text, text) TO backstop_eraser;
    GRANT EXECUTE ON FUNCTION forgotten_lately() TO backstop_eraser;
EXCEPTION WHEN undefined_object THEN
    NULL;
END $$;
