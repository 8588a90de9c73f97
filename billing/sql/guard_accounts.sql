-- The sums are the transfers' work. At depth 0 an UPDATE came from a client, deeper it came from the trigger of the
-- transfers. An account without a live sum is written by the sealing task, which only moves its sums together with
-- `rolled_seq`.
CREATE OR REPLACE TRIGGER account_sums_by_transfers_only BEFORE UPDATE ON billing_account FOR EACH ROW
    WHEN (
        OLD.id IS DISTINCT FROM NEW.id OR OLD.asset_id IS DISTINCT FROM NEW.asset_id
        OR OLD.kind IS DISTINCT FROM NEW.kind OR OLD.is_summed IS DISTINCT FROM NEW.is_summed
        OR OLD.owner_id IS DISTINCT FROM NEW.owner_id OR OLD.job_id IS DISTINCT FROM NEW.job_id
        OR (
            pg_trigger_depth() = 0
            AND (OLD.debits_pending, OLD.debits_posted, OLD.credits_pending, OLD.credits_posted)
                IS DISTINCT FROM (NEW.debits_pending, NEW.debits_posted, NEW.credits_pending, NEW.credits_posted)
            AND (OLD.is_summed OR NEW.rolled_seq <= OLD.rolled_seq)
        )
    ) EXECUTE FUNCTION billing_refuse_sums();
CREATE OR REPLACE TRIGGER account_starts_empty BEFORE INSERT ON billing_account FOR EACH ROW
    WHEN (NEW.debits_pending + NEW.debits_posted + NEW.credits_pending + NEW.credits_posted <> 0 OR NEW.rolled_seq <> 0)
    EXECUTE FUNCTION billing_refuse_sums();
