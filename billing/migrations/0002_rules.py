"""The rules that only the database can keep: sums, digests, what never changes, what adds up at commit, states.

What stands in `billing/sql/` is installed from there: a change of such a file needs a migration that installs it again.
"""

from django.db import migrations

from billing.functions import install
from billing.states import (
    BANK_MACHINE,
    BREAKER_MACHINE,
    CORRECTION_MACHINE,
    DISPUTE_MACHINE,
    HOLD_MACHINE,
    PAYOUT_MACHINE,
)
from billing.states.chain import ESCROW_HOLD_MACHINE, ROOT_MACHINE, STAKE_SLASH_MACHINE, TRANSACTION_MACHINE
from billing.states.fiat import DISPUTE_MACHINE as CARD_DISPUTE_MACHINE
from billing.states.fiat import REFUND_MACHINE, REVERSAL_MACHINE, TOP_UP_MACHINE
from marketplace.foundation.state_triggers import enforce_states

# Backwards only, and last of all: away with every function of ours, and with the triggers that call one.
FORGET = """
DO $$
DECLARE
    signature regprocedure;
BEGIN
    FOR signature IN
        SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND starts_with(proname, 'billing_')
    LOOP
        EXECUTE format('DROP FUNCTION %s CASCADE', signature);
    END LOOP;
END $$;
"""

# Room on each page for the next version of a row whose sums change all day, so that no index has to learn of it.
STORAGE = """
ALTER TABLE billing_account SET (fillfactor = 60);
ALTER SEQUENCE billing_transfer_seq OWNED BY billing_transfer.seq;
"""
STORAGE_BACK = """
ALTER SEQUENCE billing_transfer_seq OWNED BY NONE;
ALTER TABLE billing_account RESET (fillfactor);
"""

# The one change that a transfer may see: its hashes go from NULL to their value, once.
REFUSALS = """
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

CREATE FUNCTION billing_refuse_sums() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the sums of an account are written by its transfers only'
        USING ERRCODE = 'integrity_constraint_violation', HINT = 'Post a transfer instead.';
END $$;
"""

# Once a statement, however many rows it inserts: the four sums of every account move by what the rows say.
MOVE_SUMS = """
CREATE TRIGGER transfer_moves_sums AFTER INSERT ON billing_transfer
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION billing_apply_transfers();
"""

TRANSFERS = """
CREATE TRIGGER transfer_only_sealed BEFORE UPDATE ON billing_transfer
    FOR EACH ROW EXECUTE FUNCTION billing_seal_only();
CREATE TRIGGER transfer_never_deleted BEFORE DELETE ON billing_transfer
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER transfer_never_truncated BEFORE TRUNCATE ON billing_transfer
    FOR EACH STATEMENT EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER account_never_deleted BEFORE DELETE ON billing_account
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""

# What is decided, issued, observed, published, or a fact. Quotes refer to prices.
NEVER_CHANGED = {
    "receipt": "usagereceipt",
    "evidence": "receiptevidence",
    "deposit": "deposit",
    "settlement": "settlement",
    "daily_root": "dailyroot",
    "token_price": "tokenprice",
    "endrecord": "endrecord",
    "offence": "offence",
    "offencetaking": "offencetaking",
    "invoice": "invoice",
    "solvency_report": "solvencyreport",
}
FACTS = "".join(
    f"""
CREATE TRIGGER {name}_never_changed BEFORE UPDATE OR DELETE ON billing_{table}
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""
    for name, table in NEVER_CHANGED.items()
)

# The tree of a solvency report may be dropped, and never changed.
CHUNKS = """
CREATE TRIGGER solvency_chunk_never_changed BEFORE UPDATE ON billing_solvencychunk
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""

# Who is paid, how much, through what and where to was decided with the reservation. A return has its own transfer.
PAYOUTS = """
CREATE TRIGGER payout_keeps_its_terms BEFORE UPDATE ON billing_payout FOR EACH ROW
    WHEN (
        (OLD.provider_id, OLD.rail, OLD.asset_id, OLD.amount, OLD.destination, OLD.created_at)
            IS DISTINCT FROM (NEW.provider_id, NEW.rail, NEW.asset_id, NEW.amount, NEW.destination, NEW.created_at)
        OR (OLD.pending_transfer_id IS NOT NULL AND OLD.pending_transfer_id IS DISTINCT FROM NEW.pending_transfer_id)
    ) EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER payout_never_deleted BEFORE DELETE ON billing_payout
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER payout_breaker_never_deleted BEFORE DELETE ON billing_payoutbreaker
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""

DISPUTES = """
CREATE TRIGGER dispute_never_changed_once_over BEFORE UPDATE ON billing_dispute
    FOR EACH ROW WHEN (OLD.state IN ('decided', 'withdrawn')) EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER dispute_never_deleted BEFORE DELETE ON billing_dispute
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""

CORRECTIONS = """
CREATE TRIGGER correction_keeps_its_terms BEFORE UPDATE ON billing_ledgercorrection
    FOR EACH ROW WHEN (
        OLD.state <> 'proposed'
        OR (OLD.rail, OLD.mirror, OLD.asset_id, OLD.ref, OLD.amount, OLD.against, OLD.why, OLD.proposer_id)
            IS DISTINCT FROM (NEW.rail, NEW.mirror, NEW.asset_id, NEW.ref, NEW.amount, NEW.against, NEW.why,
                NEW.proposer_id)
        OR OLD.owner_id IS DISTINCT FROM NEW.owner_id
    ) EXECUTE FUNCTION billing_refuse_change();
CREATE TRIGGER correction_never_deleted BEFORE DELETE ON billing_ledgercorrection
    FOR EACH ROW EXECUTE FUNCTION billing_refuse_change();
"""


def rule(sql: str) -> migrations.RunSQL:
    """A step that FORGET takes back."""
    return migrations.RunSQL(sql, migrations.RunSQL.noop)


class Migration(migrations.Migration):
    dependencies = [("billing", "0001_tables"), ("foundation", "0002_rules")]

    replaces = [
        ("billing", "0002_ledger_rules"),
        ("billing", "0010_hold_states"),
        ("billing", "0013_ledger_functions"),
        ("billing", "0014_holds_add_up"),
        ("billing", "0016_digest_rows"),
        ("billing", "0018_roll_up"),
        ("billing", "0019_wait_for_writers"),
        ("billing", "0021_chain_states"),
        ("billing", "0031_fiat_states"),
        ("billing", "0041_payout_rules"),
        ("billing", "0052_price_rules"),
        ("billing", "0055_fault_rules"),
        ("billing", "0056_dispute_states"),
        ("billing", "0061_failed_holds_open"),
        ("billing", "0064_stake_slash_states"),
        ("billing", "0076_solvency_rules"),
        ("billing", "0092_settle_in_parts"),
        ("billing", "0093_digest_of_parts"),
        ("billing", "0097_correction_rules"),
        ("billing", "0100_windows_of_shares"),
        ("billing", "0102_bank_leg_states"),
    ]

    operations = [
        migrations.RunSQL(migrations.RunSQL.noop, FORGET),
        migrations.RunSQL(STORAGE, STORAGE_BACK),
        rule(REFUSALS),
        rule(TRANSFERS),
        # The sums, and looks in the place of foreign keys, which would make everybody lock the same rows.
        install("guard_accounts"),
        install("apply_transfers"),
        rule(MOVE_SUMS),
        install("guard_assets"),
        install("roll_up"),
        install("wait_for_writers"),
        # The hot verbs.
        install("post_transfers"),
        install("place_hold"),
        install("settle_job"),
        # At every commit: what is set aside is what the open hold says, and a settlement's parts are its hold.
        install("guard_holds"),
        # A digest beside each row of money.
        install("digest_rows"),
        install("digest_top_ups"),
        rule(FACTS),
        rule(CHUNKS),
        rule(PAYOUTS),
        rule(DISPUTES),
        rule(CORRECTIONS),
        enforce_states("billing_hold", HOLD_MACHINE),
        enforce_states("billing_payout", PAYOUT_MACHINE),
        enforce_states("billing_bankleg", BANK_MACHINE),
        enforce_states("billing_payoutbreaker", BREAKER_MACHINE),
        enforce_states("billing_dispute", DISPUTE_MACHINE),
        enforce_states("billing_ledgercorrection", CORRECTION_MACHINE),
        enforce_states("billing_chaintransaction", TRANSACTION_MACHINE),
        enforce_states("billing_payoutroot", ROOT_MACHINE),
        enforce_states("billing_escrowhold", ESCROW_HOLD_MACHINE),
        enforce_states("billing_stakeslash", STAKE_SLASH_MACHINE),
        enforce_states("billing_topup", TOP_UP_MACHINE),
        enforce_states("billing_topuprefund", REFUND_MACHINE),
        enforce_states("billing_transferreversal", REVERSAL_MACHINE),
        enforce_states("billing_carddispute", CARD_DISPUTE_MACHINE),
    ]
