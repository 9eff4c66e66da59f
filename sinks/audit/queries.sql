-- name: insert_rows
-- One row per record; a record that comes again changes nothing.
INSERT INTO audit (topic, partition, kafka_offset, log_ms, record, intent_id, key_text, size, sanitised, body,
                   reason, pointer, value_hmac)
SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS given(
    topic text, partition int, kafka_offset bigint, log_ms bigint, record text, intent_id text, key_text text,
    size int, sanitised int, body jsonb, reason text, pointer text, value_hmac text)
ON CONFLICT (topic, partition, kafka_offset) DO NOTHING;

-- name: position_write
-- How far one partition is audited; never backwards.
INSERT INTO audit_positions (topic, partition, next_offset) VALUES (%(topic)s, %(partition)s, %(next_offset)s)
ON CONFLICT (topic, partition) DO UPDATE
SET next_offset = greatest(audit_positions.next_offset, excluded.next_offset);

-- name: positions_read
-- How far the audit is, all partitions.
SELECT topic, partition, next_offset FROM audit_positions;

-- name: counts
-- Rows per topic under a prefix.
SELECT topic, count(*) AS rows FROM audit WHERE starts_with(topic, %(prefix)s) GROUP BY topic;
