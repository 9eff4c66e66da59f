-- The story of one intent under one deployment's topics, with what the guard holds about it. The older function stays:
-- the code before this one reads by it.
CREATE FUNCTION intent_story(wanted text, who text, why text, topics text[]) RETURNS TABLE (
    topic text, partition int, kafka_offset bigint, log_ms bigint, record text, body jsonb, sanitised int,
    reason text, pointer text, note text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
    IF length(who) < 2 OR length(why) < 3 THEN
        RAISE EXCEPTION 'reading the audit needs who and why';
    END IF;
    INSERT INTO access_log (who, why, what) VALUES (who, why, 'story ' || wanted);
    RETURN QUERY
    SELECT a.topic, a.partition, a.kafka_offset, a.log_ms, a.record, a.body, a.sanitised, a.reason, a.pointer, a.note
    FROM audit AS a WHERE a.intent_id = wanted AND a.topic = ANY(topics)
    UNION ALL
    SELECT 'claims', 0, 0, c.claimed_ms, 'claim',
           jsonb_build_object('channel', c.channel, 'submission_no', c.submission_no, 'state', c.state), 0,
           NULL, NULL, NULL
    FROM claims AS c WHERE c.intent_id = wanted
    ORDER BY 4, 1, 2, 3;
END $$;
REVOKE ALL ON FUNCTION intent_story(text, text, text, text[]) FROM PUBLIC;
DO $$
BEGIN
    GRANT EXECUTE ON FUNCTION intent_story(text, text, text, text[]) TO backstop_reader;
EXCEPTION WHEN undefined_object THEN
    NULL;
END $$;
