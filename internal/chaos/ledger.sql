-- Every change of a job's status, token or destinations in a claim, noted by the transaction that makes it: what the
-- database keeps of one it keeps of the other, also over a crash.
CREATE TABLE ledger (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job bigint NOT NULL,
    by text NOT NULL,
    at timestamptz NOT NULL,
    "from" text NOT NULL,
    "to" text NOT NULL,
    token_from bigint,
    token_to bigint,
    attempts_from integer NOT NULL,
    attempts integer NOT NULL,
    expired boolean NOT NULL,
    delivered_from text[] NOT NULL,
    delivered text[] NOT NULL,
    error text
);

CREATE INDEX ON ledger (job, n);

CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger (job, by, at, "from", "to", token_from, token_to, attempts_from, attempts, expired, delivered_from, delivered, error)
    VALUES (NEW.id, current_setting('application_name'), clock_timestamp(), OLD.status, NEW.status, OLD.lease_token, NEW.lease_token,
            OLD.attempts, NEW.attempts, coalesce(OLD.leased_until < clock_timestamp(), true),
            coalesce(OLD.delivered, '{}'), coalesce(NEW.delivered, '{}'), NEW.last_error);
    RETURN NULL;
END $$;

CREATE TRIGGER note_change AFTER UPDATE ON jobs FOR EACH ROW
WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.lease_token IS DISTINCT FROM NEW.lease_token)
EXECUTE FUNCTION note_change();
