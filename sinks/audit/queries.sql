-- name: insert_rows
-- One row per record; a record that comes again changes nothing.
INSERT INTO audit (topic, partition, kafka_offset, log_ms, record, intent_id, key_text, key_hmac, size, sanitised,
                   body, reason, pointer, value_hmac, note)
SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS given(
    topic text, partition int, kafka_offset bigint, log_ms bigint, record text, intent_id text, key_text text,
    key_hmac text, size int, sanitised int, body jsonb, reason text, pointer text, value_hmac text, note text)
ON CONFLICT (topic, partition, kafka_offset) DO NOTHING;

-- name: positions_write
-- How far some partitions are audited; never backwards.
INSERT INTO audit_positions (topic, partition, next_offset)
SELECT * FROM jsonb_to_recordset(%(places)s::jsonb) AS given(topic text, partition int, next_offset bigint)
ON CONFLICT (topic, partition) DO UPDATE
SET next_offset = greatest(audit_positions.next_offset, excluded.next_offset);

-- name: positions_read
-- How far the audit is, all partitions.
SELECT topic, partition, next_offset FROM audit_positions;

-- name: counts
-- Rows per topic under a prefix.
SELECT topic, count(*) AS rows FROM audit WHERE starts_with(topic, %(prefix)s) GROUP BY topic;
