-- Split a job's hold once and for all in one round trip: the settlement, its shares, the transfers, the closed hold and
-- its event, or nothing. A settlement that is not final leaves the job free to have another hold, and another one.
--
-- `outcome` is settled; or done (before: see billing_settlement), none (no open hold), above (it costs more than is
-- held), unopened (a provider has no account yet), frozen: then nothing was written. Share n is element n of every array.
CREATE OR REPLACE FUNCTION billing_settle_job(
    _settlement_id uuid, _job_id uuid, _is_final boolean, _fee_bps int, _charged numeric, _fee numeric, _paid numeric,
    _share_ids uuid[], _lease_ids uuid[], _provider_ids uuid[], _shares_charged numeric[], _shares_fee numeric[],
    _shares_paid numeric[], _challenge_until timestamptz, _shares_until timestamptz[], _now timestamptz,
    OUT outcome text, OUT _hold_id uuid, OUT _owner_id uuid, OUT _asset_id int, OUT held numeric
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    is_frozen boolean;
    set_aside_id uuid;
    codes text[];
    targets uuid[];
    amounts numeric[];
BEGIN
    -- 1. Of two who settle, the second waits here and then finds no open hold.
    SELECT h.id, h.owner_id, h.asset_id, h.amount INTO _hold_id, _owner_id, _asset_id, held
    FROM billing_hold h WHERE h.job_id = _job_id AND h.state = 'open' FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        outcome := CASE WHEN EXISTS (SELECT 1 FROM billing_settlement s WHERE s.job_id = _job_id AND s.is_final)
                        THEN 'done' ELSE 'none' END;
        RETURN;
    END IF;
    IF _charged > held THEN
        outcome := 'above';
        RETURN;
    END IF;

    -- 2. Who gets what: each provider, the platform, the customer; what is zero is left out.
    SELECT a.id, a.is_frozen INTO set_aside_id, is_frozen FROM billing_account a
    WHERE a.owner_id = _owner_id AND a.kind = 'job_hold' AND a.job_id = _job_id AND a.asset_id = _asset_id;
    SELECT array_agg(part.code), array_agg(part.id), array_agg(part.amount) INTO codes, targets, amounts
    FROM (
        SELECT 'provider_pay', a.id, share.paid
        FROM unnest(_provider_ids, _shares_paid) AS share (provider_id, paid)
        LEFT JOIN billing_account a ON a.owner_id = share.provider_id AND a.kind = 'provider_pending'
            AND a.job_id IS NULL AND a.asset_id = _asset_id
        UNION ALL SELECT 'platform_fee', (
            SELECT a.id FROM billing_account a WHERE a.owner_id IS NULL AND a.kind = 'fee_revenue'
            AND a.job_id IS NULL AND a.asset_id = _asset_id
        ), _fee
        UNION ALL SELECT 'hold_rest', (
            SELECT a.id FROM billing_account a WHERE a.owner_id = _owner_id AND a.kind = 'customer_available'
            AND a.job_id IS NULL AND a.asset_id = _asset_id
        ), held - _charged
    ) AS part (code, id, amount)
    WHERE part.amount > 0;
    IF array_position(targets, NULL) IS NOT NULL THEN
        outcome := 'unopened';
        RETURN;
    END IF;
    IF is_frozen THEN
        outcome := 'frozen';
        RETURN;
    END IF;
    PERFORM 1 FROM billing_account a WHERE a.id = ANY (targets || set_aside_id) AND a.is_summed
    ORDER BY a.id FOR NO KEY UPDATE;

    -- 3. Written down; the money follows, and the hold is closed.
    WITH settled AS (
        INSERT INTO billing_settlement (id, job_id, is_final, hold_id, owner_id, asset_id, fee_bps, held, charged, fee,
                                        paid, refunded, challenge_until, created_at)
        VALUES (_settlement_id, _job_id, _is_final, _hold_id, _owner_id, _asset_id, _fee_bps, held, _charged, _fee,
                _paid, held - _charged, _challenge_until, _now)
    ), shares AS (
        INSERT INTO billing_settlementshare (id, settlement_id, lease_id, provider_id, charged, fee, paid,
                                             challenge_until)
        SELECT share.id, _settlement_id, lease_id, provider_id, charged, fee, paid, challenge_until
        FROM unnest(_share_ids, _lease_ids, _provider_ids, _shares_charged, _shares_fee, _shares_paid, _shares_until)
            AS share (id, lease_id, provider_id, charged, fee, paid, challenge_until)
    ), moved AS (
        INSERT INTO billing_transfer (id, group_id, asset_id, debit_id, credit_id, amount, mode, code, job_id,
                                      external_ref, effective_at, created_at)
        SELECT gen_random_uuid(), _settlement_id, _asset_id, set_aside_id, part.id, part.amount, 'single', part.code,
               _job_id, '', _now, _now
        FROM unnest(codes, targets, amounts) AS part (code, id, amount)
    ), closed AS (
        UPDATE billing_hold h SET state = 'captured', closed_at = _now WHERE h.id = _hold_id
    )
    INSERT INTO foundation_event (subject_kind, subject_id, from_state, to_state, reason, actor, data, created_at)
    VALUES ('hold', _hold_id, 'open', 'captured', 'settled', 'system',
            jsonb_build_object('settlement_id', _settlement_id, 'charged', _charged::text), _now);
    outcome := 'settled';
END $$;
