-- A key of no shape of ours is kept as a keyed hash; `note` says why a body is missing though it was readable.
ALTER TABLE audit ADD COLUMN key_hmac text, ADD COLUMN note text;

-- Who read what is as lasting as what was read.
CREATE TRIGGER access_log_append_only BEFORE UPDATE OR DELETE ON access_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER access_log_no_truncate BEFORE TRUNCATE ON access_log
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- A temporary table of the caller must never stand in for ours: pg_temp is searched first unless it is named.
ALTER FUNCTION audit_story(text, text, text) SET search_path = pg_catalog, public, pg_temp;
