-- An e-mail yields to the SMS of its intent until it may have left. Kept with the row, because a new claim of the
-- row overwrites the state that told.
ALTER TABLE claims ADD COLUMN unless_sms_claimed boolean NOT NULL DEFAULT false;
ALTER TABLE claims ADD COLUMN may_have_left boolean NOT NULL DEFAULT false;
UPDATE claims SET may_have_left = state IN ('submitting', 'accepted', 'failed', 'unknown');
