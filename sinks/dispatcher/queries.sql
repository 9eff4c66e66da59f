-- name: lock_fingerprint
-- One claim at a time per destination, whatever the intent and the key of its order, and per intent.
SELECT pg_advisory_xact_lock(hashtextextended(%(destination)s, 0)), pg_advisory_xact_lock(hashtextextended(%(intent_id)s, 1));

-- name: now_ms
-- The database's clock.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms;

-- name: claim_read
-- The row of one intent and channel.
SELECT * FROM claims WHERE intent_id = %(intent_id)s AND channel = %(channel)s FOR UPDATE;

-- name: closed_read
-- Whether the intent is done, and why.
SELECT reason FROM closed WHERE intent_id = %(intent_id)s;

-- name: suppression_read
-- Whether this destination must not be written to, under any live key; an opt-out until a later consent.
SELECT reason FROM suppressions WHERE fingerprint = ANY(%(fingerprints)s) AND channel = %(channel)s
  AND (reason <> 'opted_out' OR coalesce(opted_out_ms, recorded_ms) >= coalesce(
      (SELECT max(given_ms) FROM consents WHERE fingerprint = ANY(%(fingerprints)s)), 0))
LIMIT 1;

-- name: withdrawal_read
-- Whether the person took the consent back.
SELECT 1 AS found FROM withdrawals WHERE fingerprint = ANY(%(fingerprints)s) LIMIT 1;

-- name: sms_exists
-- Whether the SMS of this intent has a claim.
SELECT 1 AS found FROM claims WHERE intent_id = %(intent_id)s AND channel = 'sms';

-- name: lived_before
-- Whether this id was used for another request: an expiry never moves.
SELECT 1 AS found FROM claims WHERE intent_id = %(intent_id)s AND expiry_ms <> %(expiry_ms)s LIMIT 1;

-- name: claim_insert
-- The first claim of an intent and channel.
INSERT INTO claims (intent_id, channel, tenant, fingerprint, request_digest, dispatch_key, template, ttl_ms,
                    expiry_ms, submission_no, provider_account, state, claim_id, lease_until_ms,
                    first_claimed_ms, claimed_ms, unless_sms_claimed)
VALUES (%(intent_id)s, %(channel)s, %(tenant)s, %(fingerprint)s, %(request_digest)s, %(dispatch_key)s,
        %(template)s, %(ttl_ms)s, %(expiry_ms)s, %(submission_no)s, %(provider_account)s, 'claimed',
        %(claim_id)s, %(lease_until_ms)s, %(now_ms)s, %(now_ms)s, %(unless_sms_claimed)s);

-- name: claim_again
-- The next submission of a row, or the same one whose holder died before its call.
UPDATE claims SET submission_no = %(submission_no)s, provider_account = %(provider_account)s, state = 'claimed',
       claim_id = %(claim_id)s, lease_until_ms = %(lease_until_ms)s, claimed_ms = %(now_ms)s,
       submitted_ms = NULL, result = NULL, unless_sms_claimed = %(unless_sms_claimed)s,
       may_have_left = %(may_have_left)s
WHERE intent_id = %(intent_id)s AND channel = %(channel)s;

-- name: begin_submit
-- Directly before the first byte: still ours, lease alive, intent not closed, and no SMS it should yield to.
UPDATE claims SET state = 'submitting', submitted_ms = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
WHERE claim_id = %(claim_id)s AND state = 'claimed'
  AND lease_until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint
  AND NOT EXISTS (SELECT 1 FROM closed WHERE closed.intent_id = claims.intent_id)
  AND (may_have_left OR NOT unless_sms_claimed OR NOT EXISTS (
      SELECT 1 FROM claims AS sms WHERE sms.intent_id = claims.intent_id AND sms.channel = 'sms'))
RETURNING submitted_ms;

-- name: stopped_by
-- Why a claim may not begin: whether its intent is done, and whether its SMS came first.
SELECT (SELECT reason FROM closed WHERE closed.intent_id = claims.intent_id) AS closed,
       unless_sms_claimed AND NOT may_have_left AND EXISTS (
           SELECT 1 FROM claims AS sms WHERE sms.intent_id = claims.intent_id AND sms.channel = 'sms') AS yields
FROM claims WHERE claim_id = %(claim_id)s;

-- name: finish
-- The result of the holder, if the row is still its. What was given up as unknown may become known; told as unknown to a
-- higher number, the row has that number, so that the same order does not claim it once its holder is known to have
-- sent nothing.
UPDATE claims SET state = %(state)s, result = %(result)s,
       submission_no = greatest(submission_no, %(submission_no)s)
WHERE claim_id = %(claim_id)s
  AND (state IN ('claimed', 'submitting')
       OR (state = 'unknown' AND (%(state)s <> 'unknown' OR %(submission_no)s > submission_no)))
RETURNING 1 AS found;

-- name: late_result
-- The result of a holder that lost its row; what is known replaces unknown.
INSERT INTO late_results (claim_id, intent_id, channel, result, recorded_ms)
VALUES (%(claim_id)s, %(intent_id)s, %(channel)s, %(result)s,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ON CONFLICT (claim_id) DO UPDATE SET result = excluded.result, recorded_ms = excluded.recorded_ms
WHERE late_results.result ->> 'state' = 'unknown';

-- name: suppression_write
-- A destination enters the list. The first reason stays, but an opt-out, which consent alone undoes, gives way to any
-- other; its last instant is kept beside it.
INSERT INTO suppressions AS s
       (fingerprint, channel, reason, cause, recorded_ms, at_ms, opted_out_ms, operator, why)
SELECT %(fingerprint)s, %(channel)s, %(reason)s, %(cause)s, now_ms, %(at_ms)s::bigint,
       CASE WHEN %(reason)s = 'opted_out' THEN coalesce(%(at_ms)s::bigint, now_ms) END, %(operator)s, %(why)s
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms) AS clock
ON CONFLICT (fingerprint, channel) DO UPDATE
SET opted_out_ms = greatest(s.opted_out_ms, excluded.opted_out_ms),
    reason = CASE WHEN s.reason = 'opted_out' THEN excluded.reason ELSE s.reason END,
    cause = CASE WHEN s.reason = 'opted_out' THEN excluded.cause ELSE s.cause END,
    recorded_ms = CASE WHEN s.reason = 'opted_out' AND s.opted_out_ms < (
        SELECT given_ms FROM consents WHERE consents.fingerprint = s.fingerprint)
        THEN excluded.recorded_ms ELSE s.recorded_ms END,
    at_ms = CASE WHEN s.reason = 'opted_out' THEN excluded.at_ms ELSE s.at_ms END,
    operator = CASE WHEN s.reason = 'opted_out' THEN excluded.operator ELSE s.operator END,
    why = CASE WHEN s.reason = 'opted_out' THEN excluded.why ELSE s.why END;

-- name: suppression_lift
-- The person agreed again, an operator says: whatever the reason was.
DELETE FROM suppressions WHERE fingerprint = %(fingerprint)s AND channel = %(channel)s;

-- name: suppression_mistake
-- It was there by mistake, an operator says: what the person opted out of stays.
WITH kept AS (
    UPDATE suppressions SET reason = 'opted_out'
    WHERE fingerprint = %(fingerprint)s AND channel = %(channel)s AND opted_out_ms IS NOT NULL
)
DELETE FROM suppressions WHERE fingerprint = %(fingerprint)s AND channel = %(channel)s
  AND opted_out_ms IS NULL AND reason <> 'opted_out';

-- name: consent_write
-- Since when these agreed; the latest stays.
INSERT INTO consents AS c (fingerprint, given_ms)
SELECT * FROM unnest(%(fingerprints)s::text[], %(given)s::bigint[])
ON CONFLICT (fingerprint) DO UPDATE SET given_ms = excluded.given_ms WHERE c.given_ms < excluded.given_ms;

-- name: closed_write
-- The intent is done; the first reason stays.
INSERT INTO closed (intent_id, reason, recorded_ms)
VALUES (%(intent_id)s, %(reason)s, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ON CONFLICT (intent_id) DO NOTHING RETURNING intent_id;

-- name: closed_as
-- Which of these intents are done for this reason.
SELECT intent_id FROM closed WHERE intent_id = ANY(%(intents)s) AND reason = %(reason)s;

-- name: subjects_lock
-- One writer of subjects at a time: two that know nothing of a subject would both take theirs for the newest.
SELECT pg_advisory_xact_lock(7302882);

-- name: subjects_read
-- The newest request of each of these subjects, as far as it was read.
SELECT * FROM subjects WHERE subject = ANY(%(subjects)s);

-- name: subjects_write
-- The newest request of each of these, in place of the one before.
INSERT INTO subjects (subject, intent_id, requested_ms, expiry_ms, forget_ms)
SELECT * FROM unnest(%(subjects)s::text[], %(intents)s::text[], %(requested)s::bigint[], %(expiries)s::bigint[],
                     %(forget)s::bigint[])
ON CONFLICT (subject) DO UPDATE
SET intent_id = excluded.intent_id, requested_ms = excluded.requested_ms, expiry_ms = excluded.expiry_ms,
    forget_ms = excluded.forget_ms;

-- name: subjects_forget
-- Subjects of which no older request can be alive, some at a time.
DELETE FROM subjects WHERE subject IN (
    SELECT subject FROM subjects WHERE forget_ms < (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    ORDER BY forget_ms LIMIT 1000);

-- name: progress_write
-- How far the reading of one partition is; never backwards.
INSERT INTO closed_progress (topic, partition, next_offset) VALUES (%(topic)s, %(partition)s, %(next_offset)s)
ON CONFLICT (topic, partition) DO UPDATE
SET next_offset = greatest(closed_progress.next_offset, excluded.next_offset);

-- name: progress_read
-- How far the reading is, all partitions.
SELECT topic, partition, next_offset FROM closed_progress;

-- name: spend_lock
-- The counts of these scopes are ours until the end, taken in the order given: after every other lock.
SELECT count(pg_advisory_xact_lock(hashtextextended(scope, 2))) FROM unnest(%(scopes)s::text[]) AS scope;

-- name: spend_read
-- What was counted by scope: in this hour, on this day (UTC), in the last 24 hours, on the best of the 14 days before.
WITH s AS (SELECT * FROM sms_spend WHERE scope = ANY(%(scopes)s) AND hour_ms >= %(best_ms)s),
     days AS (SELECT scope, sum(finished) AS finished FROM s WHERE hour_ms < %(day_ms)s
              GROUP BY scope, hour_ms / 86400000),
     best AS (SELECT scope, max(finished) AS finished FROM days GROUP BY scope)
SELECT s.scope,
       coalesce(sum(messages) FILTER (WHERE hour_ms = %(hour_ms)s), 0)::int AS hour_messages,
       coalesce(sum(amount) FILTER (WHERE hour_ms = %(hour_ms)s AND currency = %(currency)s), 0) AS hour_amount,
       coalesce(sum(s.finished) FILTER (WHERE hour_ms = %(hour_ms)s), 0)::int AS hour_finished,
       coalesce(sum(messages) FILTER (WHERE hour_ms >= %(day_ms)s), 0)::int AS day_messages,
       coalesce(sum(amount) FILTER (WHERE hour_ms >= %(day_ms)s AND currency = %(currency)s), 0) AS day_amount,
       coalesce(sum(messages) FILTER (WHERE hour_ms >= %(recent_ms)s), 0)::int AS recent_messages,
       coalesce(sum(s.finished) FILTER (WHERE hour_ms >= %(recent_ms)s), 0)::int AS recent_finished,
       coalesce(max(best.finished), 0)::int AS best_day_finished
FROM s LEFT JOIN best ON best.scope = s.scope
GROUP BY s.scope;

-- name: spend_forget
-- What is older than anybody looks at, some at a time.
DELETE FROM sms_spend WHERE (scope, hour_ms, currency) IN (
    SELECT scope, hour_ms, currency FROM sms_spend WHERE hour_ms < %(kept_ms)s ORDER BY hour_ms LIMIT 100);

-- name: spend_add
-- One more SMS in every scope of its claim.
INSERT INTO sms_spend AS s (scope, hour_ms, messages, segments, amount, currency, finished)
SELECT scope, %(hour_ms)s, 1, %(segments)s, %(amount)s, %(currency)s, 0 FROM unnest(%(scopes)s::text[]) AS scope
ON CONFLICT (scope, hour_ms, currency) DO UPDATE
SET messages = s.messages + 1, segments = s.segments + excluded.segments, amount = s.amount + excluded.amount;

-- name: spend_on_claim
-- Where the claim was counted, on its row.
UPDATE claims SET is_counted = true, country = %(country)s, purpose = %(purpose)s, segments = %(segments)s,
       amount = %(amount)s, currency = %(currency)s, spend_scopes = %(scopes)s, spend_hour_ms = %(hour_ms)s
WHERE intent_id = %(intent_id)s AND channel = 'sms';

-- name: spend_off_claim
-- The provider did not take it, and no earlier submission can have left: it counts no more, and only once.
UPDATE claims SET is_counted = false WHERE claim_id = %(claim_id)s AND is_counted AND NOT may_have_left
RETURNING spend_scopes AS scopes, spend_hour_ms AS hour_ms, segments, amount, currency;

-- name: spend_give_back
-- One SMS less in every scope of its claim.
UPDATE sms_spend SET messages = greatest(messages - 1, 0), segments = greatest(segments - %(segments)s, 0),
       amount = greatest(amount - %(amount)s, 0)
WHERE scope = ANY(%(scopes)s) AND hour_ms = %(hour_ms)s AND currency = %(currency)s;

-- name: spend_of_completed
-- Where the SMS of these intents were counted.
SELECT intent_id, spend_scopes AS scopes FROM claims
WHERE intent_id = ANY(%(intents)s) AND channel = 'sms' AND is_counted;

-- name: spend_finished
-- These messages were of use, each in every scope it was counted in; only where the counts are locked.
UPDATE sms_spend AS s SET finished = s.finished + c.finished
FROM (SELECT scope, spend_hour_ms, currency, count(*) AS finished FROM claims, unnest(spend_scopes) AS scope
      WHERE intent_id = ANY(%(intents)s) AND channel = 'sms' AND is_counted AND spend_scopes <@ %(scopes)s::text[]
      GROUP BY scope, spend_hour_ms, currency) AS c
WHERE s.scope = c.scope AND s.hour_ms = c.spend_hour_ms AND s.currency = c.currency;
