-- Set money aside for a job in one round trip: the hold, its transfer and its event, or nothing.
--
-- `outcome` is placed; or settled, present (another hold is open), short, frozen: then nothing was written.
CREATE OR REPLACE FUNCTION billing_place_hold(
    _hold_id uuid, _owner_id uuid, _job_id uuid, _asset_id int, _amount numeric, _balance_id uuid, _set_aside_id uuid,
    _now timestamptz, OUT outcome text, OUT available numeric
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    is_frozen boolean;
BEGIN
    -- 1. Is there anything to do?
    outcome := CASE
        WHEN EXISTS (SELECT 1 FROM billing_settlement s WHERE s.job_id = _job_id AND s.is_final) THEN 'settled'
        WHEN EXISTS (SELECT 1 FROM billing_hold h WHERE h.job_id = _job_id AND h.state = 'open') THEN 'present'
    END;
    IF outcome IS NOT NULL THEN
        RETURN;
    END IF;

    -- 2. Is there enough? Asked twice: without a lock, so that a refusal writes nothing; and with it, because only then
    --    the answer holds. Between, the job's account is opened; both are locked in the order of their ids, as by post.
    FOR asked IN 1 .. 2 LOOP
        SELECT a.credits_posted - a.debits_posted - a.debits_pending, a.is_frozen INTO available, is_frozen
        FROM billing_account a WHERE a.id = _balance_id;
        IF is_frozen OR available IS NULL OR available < _amount THEN
            outcome := CASE WHEN is_frozen THEN 'frozen' ELSE 'short' END;
            RETURN;
        END IF;
        EXIT WHEN asked = 2;
        INSERT INTO billing_account (id, asset_id, kind, owner_id, job_id, debits_pending, debits_posted,
                                     credits_pending, credits_posted, is_nonnegative, is_frozen, is_summed, rolled_seq,
                                     created_at)
        VALUES (_set_aside_id, _asset_id, 'job_hold', _owner_id, _job_id, 0, 0, 0, 0, true, false, true, 0, _now)
        ON CONFLICT DO NOTHING;
        PERFORM 1 FROM billing_account a WHERE a.id IN (_balance_id, _set_aside_id) ORDER BY a.id FOR NO KEY UPDATE;
    END LOOP;

    -- 3. The hold, its money and its event. The database lets one hold be open per job: who comes second waits here, and
    --    then that is the one.
    WITH placed AS (
        INSERT INTO billing_hold (id, owner_id, job_id, asset_id, amount, state, created_at)
        VALUES (_hold_id, _owner_id, _job_id, _asset_id, _amount, 'open', _now)
        ON CONFLICT (job_id) WHERE state = 'open' DO NOTHING RETURNING id
    ), moved AS (
        INSERT INTO billing_transfer (id, group_id, asset_id, debit_id, credit_id, amount, mode, code, job_id,
                                      external_ref, effective_at, created_at)
        SELECT gen_random_uuid(), id, _asset_id, _balance_id, _set_aside_id, _amount, 'single', 'hold', _job_id, '', _now,
               _now FROM placed
    )
    INSERT INTO foundation_event (subject_kind, subject_id, from_state, to_state, reason, actor, data, created_at)
    SELECT 'hold', id, '', 'open', '', 'system',
           jsonb_build_object('job_id', _job_id, 'asset', _asset_id, 'amount', _amount::text), _now FROM placed;
    outcome := CASE WHEN FOUND THEN 'placed' ELSE 'present' END;
END $$;
