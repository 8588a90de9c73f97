-- Move what was sealed since into the sums of the accounts that have no live ones. As the owner of the tables, for the
-- same reason as billing_apply_transfers.
CREATE OR REPLACE FUNCTION billing_roll_up(_until bigint) RETURNS int LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    rolled int;
BEGIN
    UPDATE billing_account a SET
        credits_posted = a.credits_posted + (SELECT coalesce(sum(t.amount), 0) FROM billing_transfer t
            WHERE t.credit_id = a.id AND t.seq > a.rolled_seq AND t.seq <= _until),
        debits_posted = a.debits_posted + (SELECT coalesce(sum(t.amount), 0) FROM billing_transfer t
            WHERE t.debit_id = a.id AND t.seq > a.rolled_seq AND t.seq <= _until),
        rolled_seq = _until
    WHERE NOT a.is_summed AND a.rolled_seq < _until;
    GET DIAGNOSTICS rolled = ROW_COUNT;
    RETURN rolled;
END $$;
