-- The digest of everything that a top-up says, kept beside it, as digest_rows.sql does for the rows of the ledger.
CREATE OR REPLACE FUNCTION billing_digest(r billing_topup) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT encode(sha256(convert_to(ROW(r.id, r.owner_id, r.amount, r.method, r.card_id, r.actor, r.state, r.reason, r.message,
        r.session_id, r.checkout_url, r.intent_id, r.charge_id, r.tax, r.fee, r.rail, r.is_fake,
        extract(epoch FROM r.created_at), extract(epoch FROM r.credited_at), extract(epoch FROM r.spendable_at))::text,
        'UTF8')), 'hex')
$$;
CREATE OR REPLACE TRIGGER z_top_up_digest BEFORE INSERT OR UPDATE ON billing_topup
    FOR EACH ROW EXECUTE FUNCTION billing_write_digest();
