-- Post a group of transfers, all or none, in one round trip. Either `refused` is NULL and `seqs` has their numbers in
-- their order; or nothing was written, and `refused` says why and which account does not allow it.
--
-- Transfer n is element n of every array; `_debits` and `_credits` point into `_accounts`, which has each account once.
CREATE OR REPLACE FUNCTION billing_post_transfers(
    _group_id uuid, _created_at timestamptz, _accounts uuid[], _ids uuid[], _debits int[], _credits int[],
    _assets int[], _amounts numeric[], _modes text[], _pendings uuid[], _codes text[], _jobs uuid[], _refs text[],
    _effective timestamptz[],
    OUT refused text, OUT account_id uuid, OUT available numeric, OUT needed numeric, OUT seqs bigint[]
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    -- The largest amount of a token; nobody ever has more. (A mirror of the outside may: it adds up many.)
    amount_max CONSTANT numeric := 2::numeric ^ 256 - 1;
BEGIN
    -- 1. Lock every account with a live sum in the order of their ids, so that two posts never wait for each other. NO
    --    KEY, so that a foreign key's look at the row does not wait.
    PERFORM 1 FROM billing_account a WHERE a.id = ANY (_accounts) AND a.is_summed ORDER BY a.id FOR NO KEY UPDATE;

    -- 2. Say what is missing, by name; the trigger and the CHECKs say no to whatever this does not see.
    SELECT CASE
               WHEN a.is_frozen AND moved.given > 0 THEN 'frozen'
               WHEN a.is_nonnegative AND left_over.units + moved.taken < moved.given THEN 'short'
               WHEN a.is_nonnegative
                AND left_over.units + a.debits_pending + moved.taken - moved.given > amount_max THEN 'full'
           END,
           a.id, left_over.units, moved.given - moved.taken
    INTO refused, account_id, available, needed
    FROM (
        SELECT leg.account, coalesce(sum(leg.given), 0) AS given, coalesce(sum(leg.taken), 0) AS taken
        FROM (
            SELECT debit AS account, amount AS given, 0 AS taken
            FROM unnest(_debits, _amounts, _modes) AS t (debit, amount, mode) WHERE mode IN ('single', 'pending')
            UNION ALL
            SELECT credit, 0, amount
            FROM unnest(_credits, _amounts, _modes) AS t (credit, amount, mode) WHERE mode IN ('single', 'post')
        ) leg GROUP BY leg.account
    ) moved
    JOIN billing_account a ON a.id = _accounts[moved.account] AND a.is_summed
    CROSS JOIN LATERAL (SELECT a.credits_posted - a.debits_posted - a.debits_pending) AS left_over (units)
    ORDER BY 1, a.id LIMIT 1;
    IF refused IS NOT NULL THEN
        RETURN;
    END IF;

    -- 3. One statement: its trigger sees, and checks, the group as a whole, and moves the sums.
    WITH posted AS (
        INSERT INTO billing_transfer (id, group_id, asset_id, debit_id, credit_id, amount, mode, pending_id, code, job_id,
                                      external_ref, effective_at, created_at)
        SELECT t.id, _group_id, t.asset, _accounts[t.debit], _accounts[t.credit], t.amount, t.mode, t.pending, t.code,
               t.job, t.ref, coalesce(t.effective, _created_at), _created_at
        FROM unnest(_ids, _assets, _debits, _credits, _amounts, _modes, _pendings, _codes, _jobs, _refs, _effective)
            AS t (id, asset, debit, credit, amount, mode, pending, code, job, ref, effective)
        RETURNING seq
    )
    SELECT array_agg(seq) INTO seqs FROM posted;
END $$;
