-- At every commit: what is set aside for a job is what its open hold says, and nothing where none is open; a job whose
-- money is final has no pending transfer left.
CREATE OR REPLACE FUNCTION billing_check_set_aside() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    held numeric;
    set_aside numeric;
BEGIN
    SELECT (SELECT h.amount FROM billing_hold h WHERE h.job_id = NEW.job_id AND h.state = 'open'
                AND h.owner_id = NEW.owner_id AND h.asset_id = NEW.asset_id),
           (SELECT a.credits_posted - a.debits_posted - a.debits_pending FROM billing_account a
            WHERE a.owner_id = NEW.owner_id AND a.kind = 'job_hold' AND a.job_id = NEW.job_id
                AND a.asset_id = NEW.asset_id)
    INTO held, set_aside;
    IF coalesce(set_aside, 0) <> coalesce(held, 0) THEN
        RAISE EXCEPTION '% is set aside for job %, its open hold says %', coalesce(set_aside, 0), NEW.job_id,
            coalesce(held, 0) USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_fits_its_account';
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION billing_check_nothing_pending() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM billing_transfer p WHERE p.job_id = NEW.job_id AND p.mode = 'pending'
        AND NOT EXISTS (SELECT 1 FROM billing_transfer r WHERE r.pending_id = p.id)
    ) THEN
        RAISE EXCEPTION 'job % is at its end and has a pending transfer', NEW.job_id
            USING ERRCODE = 'check_violation', CONSTRAINT = 'hold_ends_without_pending';
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS hold_fits_its_account ON billing_hold;
CREATE CONSTRAINT TRIGGER hold_fits_its_account AFTER INSERT OR UPDATE ON billing_hold
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_check_set_aside();
DROP TRIGGER IF EXISTS hold_ends_without_pending ON billing_hold;
CREATE CONSTRAINT TRIGGER hold_ends_without_pending AFTER UPDATE ON billing_hold
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.state <> 'open')
    EXECUTE FUNCTION billing_check_nothing_pending();
DROP TRIGGER IF EXISTS account_fits_its_hold ON billing_account;
CREATE CONSTRAINT TRIGGER account_fits_its_hold AFTER UPDATE ON billing_account
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.kind = 'job_hold')
    EXECUTE FUNCTION billing_check_set_aside();

-- A hold says for whom and which job it is, from its beginning to its end; and it stays.
CREATE OR REPLACE TRIGGER hold_keeps_its_job BEFORE UPDATE ON billing_hold FOR EACH ROW
    WHEN (
        (OLD.id, OLD.owner_id, OLD.job_id, OLD.asset_id, OLD.created_at)
            IS DISTINCT FROM (NEW.id, NEW.owner_id, NEW.job_id, NEW.asset_id, NEW.created_at)
        OR (OLD.state <> 'open' AND OLD.state = NEW.state
            AND (OLD.amount, OLD.closed_at) IS DISTINCT FROM (NEW.amount, NEW.closed_at))
    ) EXECUTE FUNCTION billing_refuse_change();
CREATE OR REPLACE TRIGGER hold_never_deleted BEFORE DELETE ON billing_hold
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();

-- The parts of a settlement are those of its shares, and the whole is its hold.
CREATE OR REPLACE FUNCTION billing_check_settlement() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    settlement uuid;
    wrong text;
BEGIN
    IF TG_TABLE_NAME = 'billing_settlement' THEN
        settlement := NEW.id;
    ELSE
        settlement := NEW.settlement_id;
    END IF;
    SELECT CASE
        WHEN h.id IS NULL THEN 'settlement_is_of_its_hold'
        WHEN (s.charged, s.fee, s.paid) <> (
            SELECT coalesce(sum(part.charged), 0), coalesce(sum(part.fee), 0), coalesce(sum(part.paid), 0)
            FROM billing_settlementshare part WHERE part.settlement_id = s.id
        ) THEN 'shares_add_up'
    END INTO wrong
    FROM billing_settlement s
    LEFT JOIN billing_hold h ON h.id = s.hold_id AND h.state = 'captured'
        AND (h.job_id, h.owner_id, h.asset_id, h.amount) = (s.job_id, s.owner_id, s.asset_id, s.held)
    WHERE s.id = settlement;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'settlement % is refused by %: its parts are its hold, captured', settlement, wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = wrong;
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS settlement_adds_up ON billing_settlement;
CREATE CONSTRAINT TRIGGER settlement_adds_up AFTER INSERT ON billing_settlement
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_check_settlement();
DROP TRIGGER IF EXISTS share_adds_up ON billing_settlementshare;
CREATE CONSTRAINT TRIGGER share_adds_up AFTER INSERT ON billing_settlementshare
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION billing_check_settlement();

-- Of a share only its release may be written.
CREATE OR REPLACE TRIGGER share_only_released BEFORE UPDATE ON billing_settlementshare FOR EACH ROW
    WHEN (
        (OLD.id, OLD.settlement_id, OLD.lease_id, OLD.provider_id, OLD.charged, OLD.fee, OLD.paid, OLD.challenge_until)
            IS DISTINCT FROM
        (NEW.id, NEW.settlement_id, NEW.lease_id, NEW.provider_id, NEW.charged, NEW.fee, NEW.paid, NEW.challenge_until)
        OR (OLD.released_at IS NOT NULL AND OLD.released_at IS DISTINCT FROM NEW.released_at)
    ) EXECUTE FUNCTION billing_refuse_change();
CREATE OR REPLACE TRIGGER share_never_deleted BEFORE DELETE ON billing_settlementshare
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
