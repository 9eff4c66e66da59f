-- name: fences
-- What forbids a submission of each claim under these intents, and since when.
SELECT claims.dispatch_key, claims.expiry_ms, claims.claimed_ms, closed.recorded_ms AS closed_ms,
       min(suppressions.recorded_ms) AS suppressed_ms
FROM claims
LEFT JOIN closed ON closed.intent_id = claims.intent_id
LEFT JOIN suppressions ON suppressions.fingerprint = claims.fingerprint AND suppressions.channel = claims.channel
  AND (suppressions.reason <> 'opted_out' OR coalesce(suppressions.opted_out_ms, suppressions.recorded_ms) >= coalesce(
      (SELECT given_ms FROM consents WHERE consents.fingerprint = suppressions.fingerprint), 0))
WHERE claims.intent_id = ANY(%(intents)s)
GROUP BY claims.intent_id, claims.channel, closed.recorded_ms;

-- name: story
-- What is audited of one intent under these topics and what the guard claimed for it, by time; the reading is logged.
SELECT topic, partition, kafka_offset, log_ms, record, body, sanitised, reason, pointer, note
FROM intent_story(%(intent_id)s, %(who)s, %(why)s, %(topics)s);

-- name: topics_of
-- Where an intent was audited; for a local stack, which may hold several deployments.
SELECT DISTINCT topic FROM audit WHERE intent_id = %(intent_id)s;

-- name: suppression_check
-- What the list holds of one destination under all its fingerprints; the reading is logged.
SELECT * FROM suppression_check(%(fingerprints)s::text[], %(who)s, %(why)s);

-- name: suppression_list
-- One page of the list, by fingerprint and channel; the reading is logged.
SELECT * FROM suppression_list(%(fingerprint)s, %(channel)s, %(count)s, %(who)s, %(why)s);

-- name: person_intents
-- Which intents were about these destinations; the reading is logged.
SELECT intent_id, requested_ms, expiry_ms, ended, is_forgotten
FROM person_intents(%(fingerprints)s::text[], %(topics)s::text[], %(who)s, %(why)s);

-- name: forget_intents
-- Take what leads to a person out of the rows of these intents; logged.
SELECT audited, claimed
FROM forget_intents(%(intents)s::text[], %(topics)s::text[], %(leads)s::text[], %(now_ms)s, %(who)s, %(why)s);

-- name: forget_consents
-- Delete the consents of these destinations; logged.
SELECT forget_consents(%(fingerprints)s::text[], %(who)s, %(why)s) AS consents;

-- name: forgotten_lately
-- Intents that were forgotten a short while ago and may be named again by what was on its way.
SELECT intent_id FROM forgotten_lately();

-- name: spend_scopes
-- What SMS were counted in since then.
SELECT DISTINCT scope FROM sms_spend WHERE hour_ms >= %(recent_ms)s;
