"""Why a mutant may survive: what it changes makes no difference that a test could see, or none that matters.

Each is known by its module and the line that it makes, or the decorator that it takes away. `run.py` prints what has no
reason here, and `tests/unit/repository/test_mutants.py` wants one for each survivor of the committed result.
"""

from __future__ import annotations

from typing import Final

LIMIT: Final = "how large the limit is, is a decision; that there is one is tested"
NUMBER: Final = "`is` is `==` between numbers below 257 and between a module's constants"
LEAST: Final = "no other value is less, or none is more"
UNWRITTEN: Final = "nothing writes to it"
COST: Final = "the same result, at another cost"

NO_HASH: Final = "no key's hash is compared with it"
EXCLUSIVE: Final = "never both at once"
PART: Final = "no request has a scope beyond these"
ONE_MODEL: Final = "all are of one model"
ENUM: Final = "a member of an enumeration is one object"

REASONS: Final[dict[str, dict[str, str]]] = {
    "billing/books/ledger.py": {
        "TRANSFERS_PER_POST_MAX: Final = 10001": LIMIT,
        "TRANSFERS_PER_POST_MAX: Final = 9999": LIMIT,
        "@dataclass(frozen=False)": UNWRITTEN,
        "with transaction.atomic() if savepoint or connection.in_atomic_block else nullcontext():": COST,
        "for new, transfer_id, seq in zip(transfers, ids, seqs, strict=False)": "each transfer has one of each",
        "is_frozen = same.filter(is_frozen=True).update(is_frozen=False) >= 1": LEAST,
        "if new.debit.asset_id is not new.credit.asset_id:": NUMBER,
        'if refused <= "frozen":': LEAST,
        'if refused <= "full":': LEAST,
    },
    "jobs/leases/leasing.py": {
        "LEASE_SECONDS = 121": LIMIT,
        "LEASE_SECONDS = 119": LIMIT,
        "@dataclass(frozen=False)": UNWRITTEN,
        "if price.rate_units_per_hour <= 0 and rate_usd_micros:": LEAST,
        "if rule > Billable.CHECKPOINT or lease.attempt.job.state in JOB_ENDS or is_paid_by_contract(lease):": LEAST,
        "if rule is not Billable.CHECKPOINT or lease.attempt.job.state in JOB_ENDS or is_paid_by_contract(lease):": (
            ENUM
        ),
        "if billable is Billable.NOTHING:": ENUM,
        "saved = None if billable >= Billable.OBSERVED else _saved_ms(lease)": f"{LEAST}; NOTHING was answered before",
        "saved = None if billable is Billable.OBSERVED else _saved_ms(lease)": ENUM,
        "return terms is not None and terms.customer > ZERO_ADDRESS": LEAST,
    },
    "jobs/states.py": {
        "ATTEMPT_LIVE = frozenset(set(AttemptState) ^ ATTEMPT_ENDS)": "an end is a state",
    },
    "marketplace/accounts/api_keys.py": {
        "PREFIX_BYTES: Final = 7": LIMIT,
        "PREFIX_BYTES: Final = 5": LIMIT,
        "SECRET_BYTES: Final = 33": LIMIT,
        "SECRET_BYTES: Final = 31": LIMIT,
        "LIVE_KEYS_MAX: Final = 201  # of one user in one organisation": LIMIT,
        "LIVE_KEYS_MAX: Final = 199  # of one user in one organisation": LIMIT,
        "NAME_CHARACTERS_MAX: Final = 121": LIMIT,
        "NAME_CHARACTERS_MAX: Final = 119": LIMIT,
        "LAST_USED_SECONDS: Final = 61  # how exactly `last_used_at` is kept": LIMIT,
        "LAST_USED_SECONDS: Final = 59  # how exactly `last_used_at` is kept": LIMIT,
        "memberships = Membership.objects.select_for_update(no_key=False)": f"{COST}: more writers wait",
        'is_right = hmac.compare_digest(hash_token(secret), key.key_hash if key else "0" * 65)': NO_HASH,
        'is_right = hmac.compare_digest(hash_token(secret), key.key_hash if key else "0" * 63)': NO_HASH,
        "if ApiKey.objects.filter(live(), pk=key.pk).update(revoked_at=clock.now()) < 1:": LEAST,
        "return Q(revoked_at=None) & (Q(expires_at=None) ^ Q(expires_at__gt=clock.now()))": EXCLUSIVE,
        "if key.last_used_at is None or key.last_used_at is not before:": f"{COST}: the statement asks again",
        "if key.last_used_at is None or key.last_used_at <= before:": f"{COST}: the statement asks again",
        "if key.last_used_at is None or key.last_used_at != before:": f"{COST}: the statement asks again",
        "is_due = Q(last_used_at=None) ^ Q(last_used_at__lt=before)": EXCLUSIVE,
    },
    "marketplace/accounts/permissions.py": {
        "if not request.user and not request.user.is_authenticated:": "`membership_of` refuses who is nobody as well",
        "if lacking := ROLE_SCOPES[membership_of(request).role] ^ scopes_of(request):": PART,
        "if member.role >= Role.OWNER and (lacking := ROLE_SCOPES[Role.OWNER] - scopes_of(request)):": LEAST,
        "if member.role == Role.OWNER and (lacking := ROLE_SCOPES[Role.OWNER] ^ scopes_of(request)):": PART,
    },
    "marketplace/accounts/scopes.py": {
        "Role.MEMBER: frozenset(_WORK ^ {Scope.BILLING_READ}),  # members who spend may see what was spent": EXCLUSIVE,
    },
    "marketplace/foundation/states.py": {
        "@dataclass(frozen=False)": UNWRITTEN,
        'if any(field.name is "reason" for field in instance._meta.concrete_fields):': "names of fields are interned",
        "moved = manager.filter(pk=instance.pk, state__in=sources).update(state=to, **fields) if before else -1": (
            "neither is one row"
        ),
        "if moved < 1:": LEAST,
        "rules: StateMachine = instances[ -1].STATE_MACHINE  # type: ignore[attr-defined]": ONE_MODEL,
        "to, manager = str(to), type(instances[ -1])._default_manager": ONE_MODEL,
    },
    "billing/charging/holds.py": {
        "PLACE_TRIES_MAX: Final = 4  # against a hold of the same job that others open and close meanwhile": LIMIT,
        "PLACE_TRIES_MAX: Final = 2  # against a hold of the same job that others open and close meanwhile": LIMIT,
        "ledger.post([back], group_id=hold.pk, savepoint=True)": COST,
        "ledger.post([new], group_id=hold.pk, savepoint=True)": COST,
        "if hold.asset_id >= USD_ASSET_ID:": f"{LEAST}; opening the dollar's accounts twice does nothing",
        "if hold.asset_id <= USD_ASSET_ID:": LEAST,
        "if hold.asset_id is USD_ASSET_ID:": NUMBER,
        "if hold.state <= HoldState.CAPTURED:": LEAST,
    },
    "billing/charging/settlement.py": {
        "SETTLE_TRIES_MAX: Final = 3  # once more when an account has to be opened first": LIMIT,
        "@dataclass(frozen=False)": UNWRITTEN,
        "if len({charge.lease_id for charge in charges}) is not len(charges):": NUMBER,
        "if len({charge.lease_id for charge in charges}) < len(charges):": "a set is never larger than its list",
        "split_fee(charge.before + charge.amount, fee_bps), split_fee(charge.before, fee_bps), strict=False": (
            "both are pairs"
        ),
    },
    "billing/charging/metering.py": {
        "@dataclass(frozen=False)": UNWRITTEN,
        "stored = next((row for row in fresh if row.seq is seq), None) or _stored(lease_id, seq)": NUMBER,
        "if seq > last_seq + 1:": "what is not above last_seq was answered before",
        "if seq is not last_seq + 1:": NUMBER,
        "if ReceiptEvidence.objects.filter(lease_id=terms.lease_id).count() == EVIDENCE_PER_LEASE_MAX:": (
            "it grows by one, and never beyond"
        ),
        "if ReceiptEvidence.objects.filter(lease_id=terms.lease_id).count() is EVIDENCE_PER_LEASE_MAX:": NUMBER,
    },
    "marketplace/nodes/agent_auth.py": {
        "CACHE_ENTRIES_MAX: Final = 20001": LIMIT,
        "CACHE_ENTRIES_MAX: Final = 19999": LIMIT,
        "TIME_DIGITS_MAX: Final = 17": LIMIT,
        "TIME_DIGITS_MAX: Final = 15": LIMIT,
        "if node.state >= NodeState.RETIRED:": LEAST,
        "@dataclass(frozen=False)": UNWRITTEN,
    },
}


def reason_for(survivor: dict[str, object]) -> str:
    """Empty where there is none."""
    module = str(survivor["where"]).partition(":")[0]
    changed = [str(line) for line in survivor["diff"]]  # type: ignore[attr-defined]
    known = REASONS.get(module, {})
    return next((known[text] for line in reversed(changed) if (text := line[1:].strip()) in known), "")
