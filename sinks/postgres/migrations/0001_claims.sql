-- Claims: the row without which nothing is submitted. One per intent and channel, kept until expiry + 7 days.
CREATE TABLE claims (
    intent_id        text    NOT NULL,
    channel          text    NOT NULL CHECK (channel IN ('email', 'sms')),
    tenant           text    NOT NULL,
    fingerprint      text    NOT NULL,
    request_digest   text    NOT NULL,
    dispatch_key     text    NOT NULL,
    template         text    NOT NULL,
    ttl_ms           bigint  NOT NULL,              -- fixed at the first claim: a resubmission has the same bytes
    expiry_ms        bigint  NOT NULL,
    submission_no    int     NOT NULL,
    provider_account text    NOT NULL,
    state            text    NOT NULL CHECK (state IN
        ('claimed', 'submitting', 'accepted', 'failed', 'refused', 'unknown', 'not_accepted', 'held')),
    claim_id         text    NOT NULL,
    lease_until_ms   bigint  NOT NULL,              -- by the database's clock
    first_claimed_ms bigint  NOT NULL,
    claimed_ms       bigint  NOT NULL,
    submitted_ms     bigint,
    result           jsonb,                         -- the Attempt as it was, or is to be, published
    PRIMARY KEY (intent_id, channel)
);

-- A result that came after its lease was over: recorded, never discarded.
CREATE TABLE late_results (
    claim_id    text   PRIMARY KEY,
    intent_id   text   NOT NULL,
    channel     text   NOT NULL,
    result      jsonb  NOT NULL,
    recorded_ms bigint NOT NULL
);

-- Who is done, by the dispatcher's own reading of intents and instructions.
CREATE TABLE closed (
    intent_id   text   PRIMARY KEY,
    reason      text   NOT NULL,
    recorded_ms bigint NOT NULL
);

-- How far that reading is, per partition: an SMS claim asks for all of them.
CREATE TABLE closed_progress (
    topic       text   NOT NULL,
    partition   int    NOT NULL,
    next_offset bigint NOT NULL,
    PRIMARY KEY (topic, partition)
);

-- Destinations that must not be written to; from results here and from the compacted topic.
CREATE TABLE suppressions (
    fingerprint text   NOT NULL,
    channel     text   NOT NULL,
    reason      text   NOT NULL,
    cause       text   NOT NULL,
    recorded_ms bigint NOT NULL,
    PRIMARY KEY (fingerprint, channel)
);

-- Consent withdrawn after it was given; only a later consent record lifts it.
CREATE TABLE withdrawals (
    fingerprint text   PRIMARY KEY,
    recorded_ms bigint NOT NULL
);
