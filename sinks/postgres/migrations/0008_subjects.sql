-- The newest request of each subject, by the dispatcher's own reading of intents: an older intent is closed before its
-- SMS is claimed, however far the worker is behind. A subject is tenant, purpose and a keyed hash.
CREATE TABLE subjects (
    subject      text   PRIMARY KEY,
    intent_id    text   NOT NULL,
    requested_ms bigint NOT NULL,                   -- as the request says, and never later than the log
    expiry_ms    bigint NOT NULL,
    forget_ms    bigint NOT NULL                    -- from then on no older request can be alive
);
CREATE INDEX subjects_forget ON subjects (forget_ms);
