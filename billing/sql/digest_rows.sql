-- The digest of everything that a row of money says, kept beside it: one flipped byte is found and named by
-- `souk ledger verify`. Columns are named here, so that a new one does not make old rows look changed. Times as seconds
-- and bytes as JSON text: no setting of a session changes either.
CREATE OR REPLACE FUNCTION billing_digest(r billing_deposit) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.owner_id, r.asset_id, r.amount, r.rail, r.reference, r.actor, r.transfer_id,
        extract(epoch FROM r.created_at))::text, 'UTF8')), 'hex')
$$;
CREATE OR REPLACE FUNCTION billing_digest(r billing_hold) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.owner_id, r.job_id, r.asset_id, r.amount, r.state,
        extract(epoch FROM r.created_at), extract(epoch FROM r.closed_at))::text, 'UTF8')), 'hex')
$$;
CREATE OR REPLACE FUNCTION billing_digest(r billing_settlement) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.job_id, r.hold_id, r.owner_id, r.asset_id, r.fee_bps, r.held, r.charged,
        r.fee, r.paid, r.refunded, extract(epoch FROM r.challenge_until), extract(epoch FROM r.created_at))::text
        -- Of a part that is not the last; rows from before there were parts keep their digest.
        || CASE WHEN to_jsonb(r) ->> 'is_final' = 'false' THEN '/part' ELSE '' END,
        'UTF8')), 'hex')
$$;
CREATE OR REPLACE FUNCTION billing_digest(r billing_settlementshare) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.settlement_id, r.lease_id, r.provider_id, r.charged, r.fee, r.paid,
        extract(epoch FROM r.challenge_until), extract(epoch FROM r.released_at), r.is_disputed)::text, 'UTF8')), 'hex')
$$;
CREATE OR REPLACE FUNCTION billing_digest(r billing_usagereceipt) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.job_id, r.lease_id, r.seq, r.billable_ms, r.cumulative_amount, r.provider,
        r.customer, r.asset, r.chain_id, r.contract, r.meter_hash, r.prev_digest, r.digest, r.signature, r.signer,
        extract(epoch FROM r.received_at))::text, 'UTF8')), 'hex')
$$;
CREATE OR REPLACE FUNCTION billing_digest(r billing_receiptevidence) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.job_id, r.lease_id, r.seq, r.signer, r.accepted_digest, r.other_digest,
        r.accepted, r.other, r.chain_id, r.contract, extract(epoch FROM r.found_at))::text, 'UTF8')), 'hex')
$$;
CREATE OR REPLACE FUNCTION billing_digest(r billing_dailyroot) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.day - DATE '2000-01-01', r.first_seq, r.last_seq, r.transfers, r.root,
        extract(epoch FROM r.sealed_at))::text, 'UTF8')), 'hex')
$$;

CREATE OR REPLACE FUNCTION billing_write_digest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.row_digest := billing_digest(NEW);
    RETURN NEW;
END $$;

-- The last of the triggers before a row is written, by its name: it sees what will be written.
CREATE OR REPLACE TRIGGER z_deposit_digest BEFORE INSERT OR UPDATE ON billing_deposit
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
CREATE OR REPLACE TRIGGER z_hold_digest BEFORE INSERT OR UPDATE ON billing_hold
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
CREATE OR REPLACE TRIGGER z_settlement_digest BEFORE INSERT OR UPDATE ON billing_settlement
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
CREATE OR REPLACE TRIGGER z_share_digest BEFORE INSERT OR UPDATE ON billing_settlementshare
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
CREATE OR REPLACE TRIGGER z_receipt_digest BEFORE INSERT OR UPDATE ON billing_usagereceipt
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
CREATE OR REPLACE TRIGGER z_evidence_digest BEFORE INSERT OR UPDATE ON billing_receiptevidence
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
CREATE OR REPLACE TRIGGER z_daily_root_digest BEFORE INSERT OR UPDATE ON billing_dailyroot
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
