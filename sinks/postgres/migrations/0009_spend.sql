-- What an SMS is estimated to cost, and where that was counted: kept on the row, so that it is given back exactly once and
-- exactly there. `is_counted` is false before the claim counts and after it was given back.
ALTER TABLE claims ADD COLUMN country text, ADD COLUMN purpose text, ADD COLUMN segments int,
    ADD COLUMN amount numeric(14, 6), ADD COLUMN currency text, ADD COLUMN spend_scopes text[],
    ADD COLUMN spend_hour_ms bigint, ADD COLUMN is_counted boolean NOT NULL DEFAULT false;

-- Counts by scope ("country=GB tenant=...") and clock hour. `finished`: of these messages, those whose intent was
-- completed. No row names a person; a range of numbers is a keyed hash.
CREATE TABLE sms_spend (
    scope    text           NOT NULL,
    hour_ms  bigint         NOT NULL,
    messages int            NOT NULL,
    segments int            NOT NULL,
    amount   numeric(16, 6) NOT NULL,
    currency text           NOT NULL,
    finished int            NOT NULL,
    PRIMARY KEY (scope, hour_ms, currency)
);
CREATE INDEX sms_spend_by_hour ON sms_spend (hour_ms);
