-- When the cause happened by its own record, who put it there by hand and why, and when the person answered STOP: that
-- stays known whatever else is on the list. Null in rows of the code before this.
ALTER TABLE suppressions ADD COLUMN at_ms bigint, ADD COLUMN opted_out_ms bigint, ADD COLUMN operator text, ADD COLUMN why text;
UPDATE suppressions SET opted_out_ms = recorded_ms WHERE reason = 'opted_out';

-- The latest consent to a channel, by its fingerprint: the only way back after STOP. An instant and nothing else.
CREATE TABLE consents (
    fingerprint text   PRIMARY KEY,
    given_ms    bigint NOT NULL
);

-- Who is on the list: reading by function, which logs who, why and what. No address is ever given to it.
CREATE FUNCTION suppression_check(wanted text[], who text, why text) RETURNS TABLE (
    fingerprint text, channel text, reason text, since_ms bigint, opted_out_ms bigint, consent_ms bigint,
    cause text, operator text, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF length(who) < 2 OR length(why) < 3 THEN
        RAISE EXCEPTION 'reading the list needs who and why';
    END IF;
    INSERT INTO access_log (who, why, what) VALUES (who, why, 'suppression ' || array_to_string(wanted, ' '));
    RETURN QUERY
    SELECT s.fingerprint, s.channel, s.reason, coalesce(s.at_ms, s.recorded_ms),
           CASE WHEN s.reason = 'opted_out' THEN coalesce(s.opted_out_ms, s.recorded_ms) ELSE s.opted_out_ms END,
           (SELECT max(c.given_ms) FROM consents AS c WHERE c.fingerprint = ANY(wanted)), s.cause, s.operator, s.why
    FROM suppressions AS s WHERE s.fingerprint = ANY(wanted) ORDER BY s.channel, s.fingerprint;
END $$;

-- One page of the list, after a fingerprint and channel.
CREATE FUNCTION suppression_list(after_fingerprint text, after_channel text, up_to int, who text, why text) RETURNS TABLE (
    fingerprint text, channel text, reason text, since_ms bigint, opted_out_ms bigint, consent_ms bigint,
    cause text, operator text, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF length(who) < 2 OR length(why) < 3 THEN
        RAISE EXCEPTION 'reading the list needs who and why';
    END IF;
    INSERT INTO access_log (who, why, what) VALUES (who, why, 'suppression list after ' || after_fingerprint);
    RETURN QUERY
    SELECT s.fingerprint, s.channel, s.reason, coalesce(s.at_ms, s.recorded_ms),
           CASE WHEN s.reason = 'opted_out' THEN coalesce(s.opted_out_ms, s.recorded_ms) ELSE s.opted_out_ms END,
           (SELECT c.given_ms FROM consents AS c WHERE c.fingerprint = s.fingerprint), s.cause, s.operator, s.why
    FROM suppressions AS s WHERE (s.fingerprint, s.channel) > (after_fingerprint, after_channel)
    ORDER BY s.fingerprint, s.channel LIMIT up_to;
END $$;

REVOKE ALL ON FUNCTION suppression_check(text[], text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION suppression_list(text, text, int, text, text) FROM PUBLIC;
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION suppression_check(text[], text, text) TO backstop_reader;
    GRANT EXECUTE ON FUNCTION suppression_list(text, text, int, text, text) TO backstop_reader;
EXCEPTION WHEN undefined_object THEN
    NULL;
END $$;
