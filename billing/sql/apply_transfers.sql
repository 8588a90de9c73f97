-- Once a statement, however many transfers it inserts: refuse what no door may let pass, then move the four sums of
-- every account by what the rows say. The CHECKs of billing_account refuse an overdraft. An account without a live sum
-- (is_summed = false) is left alone, so that no two settlements wait for its row.
--
-- It runs as the owner of the tables: the application's role may insert a transfer and write no sum (billing/books/sql_privileges.py).
CREATE OR REPLACE FUNCTION billing_apply_transfers() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    wrong text;
BEGIN
    -- 1. Both legs are accounts of the transfer's asset. No foreign keys: an account is never deleted and its asset never
    --    changes, so a look is as good, and the fee account's row is not locked by everybody.
    SELECT min(CASE
        WHEN d.id IS NULL THEN 'transfer_debit_of_its_asset'
        WHEN c.id IS NULL THEN 'transfer_credit_of_its_asset'
        WHEN d.is_frozen AND t.mode IN ('single', 'pending') THEN 'account_not_frozen'
        WHEN t.mode <> 'single' AND NOT (d.is_summed AND c.is_summed) THEN 'account_without_sum_single_only'
        WHEN t.mode IN ('post', 'void') AND NOT EXISTS (
            SELECT 1 FROM billing_transfer p
            WHERE p.id = t.pending_id AND p.mode = 'pending'
              AND p.debit_id = t.debit_id AND p.credit_id = t.credit_id AND p.asset_id = t.asset_id
              AND (t.amount = p.amount OR (t.mode = 'post' AND t.amount < p.amount))
        ) THEN 'transfer_fits_its_pending'
        WHEN t.code = 'exchange' AND (
            t.external_ref = '' OR t.mode <> 'single' OR 'liquidity' NOT IN (d.kind, c.kind)
            OR 2 <> (SELECT count(DISTINCT i.asset_id) FROM inserted i WHERE i.group_id = t.group_id AND i.code = 'exchange')
            OR 1 <> (SELECT count(DISTINCT i.external_ref) FROM inserted i WHERE i.group_id = t.group_id)
        ) THEN 'exchange_is_of_two_assets'
    END) INTO wrong
    FROM inserted t
    LEFT JOIN billing_account d ON d.id = t.debit_id AND d.asset_id = t.asset_id
    LEFT JOIN billing_account c ON c.id = t.credit_id AND c.asset_id = t.asset_id;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'refused by %: %', wrong, CASE wrong
            WHEN 'account_not_frozen' THEN 'a frozen account gives nothing out'
            WHEN 'account_without_sum_single_only' THEN 'an account without a live sum takes single transfers only'
            WHEN 'transfer_fits_its_pending' THEN 'a post or void must fit its pending transfer'
            WHEN 'exchange_is_of_two_assets' THEN 'an exchange is of two assets, through liquidity, at one quote'
            ELSE 'there is no such account of the transfer''s asset' END
            USING ERRCODE = 'check_violation', CONSTRAINT = wrong;
    END IF;

    -- 2. The sums.
    WITH effects AS (
        SELECT t.debit_id, t.credit_id,
               CASE t.mode WHEN 'single' THEN 0 WHEN 'pending' THEN t.amount
                   ELSE -(SELECT p.amount FROM billing_transfer p WHERE p.id = t.pending_id) END AS pending,
               CASE WHEN t.mode IN ('single', 'post') THEN t.amount ELSE 0 END AS posted
        FROM inserted t
    ), moved AS (
        SELECT account_id, sum(debits_pending) AS debits_pending, sum(debits_posted) AS debits_posted,
               sum(credits_pending) AS credits_pending, sum(credits_posted) AS credits_posted
        FROM (
            SELECT debit_id AS account_id, pending AS debits_pending, posted AS debits_posted,
                   0 AS credits_pending, 0 AS credits_posted FROM effects
            UNION ALL
            SELECT credit_id, 0, 0, pending, posted FROM effects
        ) legs
        GROUP BY account_id
    )
    UPDATE billing_account a SET
        debits_pending = a.debits_pending + moved.debits_pending,
        debits_posted = a.debits_posted + moved.debits_posted,
        credits_pending = a.credits_pending + moved.credits_pending,
        credits_posted = a.credits_posted + moved.credits_posted
    FROM moved
    WHERE a.id = moved.account_id AND a.is_summed;
    RETURN NULL;
END $$;
