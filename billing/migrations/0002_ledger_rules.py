"""The rules of the ledger that only the database can keep: sums, immutability, one asset a transfer."""

from django.db import migrations

ONE_ASSET = """
ALTER TABLE billing_transfer
    ADD CONSTRAINT transfer_debit_of_its_asset
        FOREIGN KEY (debit_id, asset_id) REFERENCES billing_account (id, asset_id),
    ADD CONSTRAINT transfer_credit_of_its_asset
        FOREIGN KEY (credit_id, asset_id) REFERENCES billing_account (id, asset_id);
ALTER SEQUENCE billing_transfer_seq OWNED BY billing_transfer.seq;
"""

ONE_ASSET_BACK = """
ALTER SEQUENCE billing_transfer_seq OWNED BY NONE;
ALTER TABLE billing_transfer
    DROP CONSTRAINT transfer_debit_of_its_asset, DROP CONSTRAINT transfer_credit_of_its_asset;
"""

# Once a statement, however many rows it inserts: the four sums of every account move by what the rows say. The CHECKs of
# billing_account then refuse an overdraft. An account without a live sum (is_summed = false) is left alone, so that no
# two settlements wait for its row.
APPLY_TRANSFERS = """
CREATE FUNCTION billing_apply_transfers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM inserted t JOIN billing_account a ON a.id = t.debit_id
        WHERE a.is_frozen AND t.mode IN ('single', 'pending')
    ) THEN
        RAISE EXCEPTION 'a frozen account gives nothing out'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'account_not_frozen';
    END IF;

    IF EXISTS (
        SELECT 1 FROM inserted t
        WHERE t.mode IN ('post', 'void') AND NOT EXISTS (
            SELECT 1 FROM billing_transfer p
            WHERE p.id = t.pending_id AND p.mode = 'pending'
              AND p.debit_id = t.debit_id AND p.credit_id = t.credit_id AND p.asset_id = t.asset_id
              AND (t.amount = p.amount OR (t.mode = 'post' AND t.amount < p.amount))
        )
    ) THEN
        RAISE EXCEPTION 'a post or void must fit its pending transfer'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'transfer_fits_its_pending';
    END IF;

    IF EXISTS (
        SELECT 1 FROM inserted t JOIN billing_account a ON a.id IN (t.debit_id, t.credit_id)
        WHERE t.mode <> 'single' AND NOT a.is_summed
    ) THEN
        RAISE EXCEPTION 'an account without a live sum takes single transfers only'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'account_without_sum_single_only';
    END IF;

    UPDATE billing_account a SET
        debits_pending = a.debits_pending + moved.debits_pending,
        debits_posted = a.debits_posted + moved.debits_posted,
        credits_pending = a.credits_pending + moved.credits_pending,
        credits_posted = a.credits_posted + moved.credits_posted
    FROM (
        SELECT account_id,
               coalesce(sum(pending) FILTER (WHERE is_debit), 0) AS debits_pending,
               coalesce(sum(posted) FILTER (WHERE is_debit), 0) AS debits_posted,
               coalesce(sum(pending) FILTER (WHERE NOT is_debit), 0) AS credits_pending,
               coalesce(sum(posted) FILTER (WHERE NOT is_debit), 0) AS credits_posted
        FROM (
            SELECT CASE WHEN leg.is_debit THEN t.debit_id ELSE t.credit_id END AS account_id, leg.is_debit,
                   CASE
                       WHEN t.mode = 'pending' THEN t.amount
                       WHEN t.mode IN ('post', 'void')
                           THEN -(SELECT p.amount FROM billing_transfer p WHERE p.id = t.pending_id)
                       ELSE 0
                   END AS pending,
                   CASE WHEN t.mode IN ('single', 'post') THEN t.amount ELSE 0 END AS posted
            FROM inserted t CROSS JOIN (VALUES (true), (false)) AS leg (is_debit)
        ) legs
        GROUP BY account_id
    ) moved
    WHERE a.id = moved.account_id AND a.is_summed;
    RETURN NULL;
END $$;

CREATE TRIGGER transfer_moves_sums AFTER INSERT ON billing_transfer
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION billing_apply_transfers();
"""
APPLY_TRANSFERS_BACK = """
DROP TRIGGER transfer_moves_sums ON billing_transfer;
DROP FUNCTION billing_apply_transfers();
"""

# The one change that a transfer may see: its hashes go from NULL to their value, once.
IMMUTABLE = """
CREATE FUNCTION billing_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows are immutable', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation', HINT = 'Post a correcting transfer instead.';
END $$;

CREATE FUNCTION billing_seal_only() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    sealed billing_transfer := OLD;
BEGIN
    sealed.prev_hash := NEW.prev_hash;
    sealed.hash := NEW.hash;
    IF OLD.hash IS NULL AND NEW.hash IS NOT NULL AND sealed IS NOT DISTINCT FROM NEW THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'UPDATE of % is refused: its rows are immutable', TG_TABLE_NAME
        USING ERRCODE = 'integrity_constraint_violation', HINT = 'Post a correcting transfer instead.';
END $$;

CREATE TRIGGER transfer_only_sealed BEFORE UPDATE ON billing_transfer
    FOR EACH ROW EXECUTE FUNCTION billing_seal_only();
CREATE TRIGGER transfer_never_deleted BEFORE DELETE ON billing_transfer
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER transfer_never_truncated BEFORE TRUNCATE ON billing_transfer
    FOR EACH STATEMENT EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER receipt_never_changed BEFORE UPDATE OR DELETE ON billing_usagereceipt
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER evidence_never_changed BEFORE UPDATE OR DELETE ON billing_receiptevidence
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER deposit_never_changed BEFORE UPDATE OR DELETE ON billing_deposit
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER settlement_never_changed BEFORE UPDATE OR DELETE ON billing_settlement
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER daily_root_never_changed BEFORE UPDATE OR DELETE ON billing_dailyroot
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""

IMMUTABLE_BACK = """
DROP TRIGGER daily_root_never_changed ON billing_dailyroot;
DROP TRIGGER settlement_never_changed ON billing_settlement;
DROP TRIGGER deposit_never_changed ON billing_deposit;
DROP TRIGGER evidence_never_changed ON billing_receiptevidence;
DROP TRIGGER receipt_never_changed ON billing_usagereceipt;
DROP TRIGGER transfer_never_truncated ON billing_transfer;
DROP TRIGGER transfer_never_deleted ON billing_transfer;
DROP TRIGGER transfer_only_sealed ON billing_transfer;
DROP FUNCTION billing_seal_only();
DROP FUNCTION billing_refuse_change();
"""

# The sums are the transfers' work. At depth 0 an UPDATE came from a client, deeper it came from the trigger above. An
# account without a live sum is written by the sealing task, which only moves its sums together with `rolled_seq`.
SUMS_GUARDED = """
CREATE FUNCTION billing_refuse_sums() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the sums of an account are written by its transfers only'
        USING ERRCODE = 'integrity_constraint_violation', HINT = 'Post a transfer instead.';
END $$;

CREATE TRIGGER account_sums_by_transfers_only BEFORE UPDATE ON billing_account FOR EACH ROW
    WHEN (
        OLD.id IS DISTINCT FROM NEW.id OR OLD.asset_id IS DISTINCT FROM NEW.asset_id
        OR OLD.kind IS DISTINCT FROM NEW.kind OR OLD.is_summed IS DISTINCT FROM NEW.is_summed
        OR (
            (OLD.debits_pending, OLD.debits_posted, OLD.credits_pending, OLD.credits_posted)
                IS DISTINCT FROM (NEW.debits_pending, NEW.debits_posted, NEW.credits_pending, NEW.credits_posted)
            AND pg_trigger_depth() = 0 AND (OLD.is_summed OR NEW.rolled_seq <= OLD.rolled_seq)
        )
    ) EXECUTE FUNCTION billing_refuse_sums();
CREATE TRIGGER account_starts_empty BEFORE INSERT ON billing_account FOR EACH ROW
    WHEN (NEW.debits_pending + NEW.debits_posted + NEW.credits_pending + NEW.credits_posted <> 0 OR NEW.rolled_seq <> 0)
    EXECUTE FUNCTION billing_refuse_sums();
CREATE TRIGGER account_never_deleted BEFORE DELETE ON billing_account
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""

SUMS_GUARDED_BACK = """
DROP TRIGGER account_never_deleted ON billing_account;
DROP TRIGGER account_starts_empty ON billing_account;
DROP TRIGGER account_sums_by_transfers_only ON billing_account;
DROP FUNCTION billing_refuse_sums();
"""


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_ledger")]

    operations = [
        migrations.RunSQL(ONE_ASSET, ONE_ASSET_BACK),
        migrations.RunSQL(APPLY_TRANSFERS, APPLY_TRANSFERS_BACK),
        migrations.RunSQL(IMMUTABLE, IMMUTABLE_BACK),
        migrations.RunSQL(SUMS_GUARDED, SUMS_GUARDED_BACK),
    ]
