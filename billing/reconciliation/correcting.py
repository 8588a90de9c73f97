"""The ledger is corrected by two people, and only by what the newest reconciliation found.

propose     a difference that nothing explains, as it is in the newest report: nobody types an amount
approve     another person agrees while the difference still stands; it is posted in the same transaction
reject      it is not; the proposer may do so too
watch       whoever is new among the operators is an alert to the others

Whoever has one operator's session can make a second operator, and agree with themselves. So an operator approves only
what was proposed when they had been one for APPROVER_AFTER: time for the others to see it.

Both are recorded with their reason: in the row, which never changes afterwards, and in its events.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import Sum

from billing.account_kinds import OWNED_KINDS, AccountKind
from billing.books import ledger
from billing.books.chart_of_accounts import AccountName, lock_accounts, open_accounts
from billing.errors import CorrectionRefused
from billing.models import Account, Alert, Difference, LedgerCorrection, Reconciliation, StripeBooking
from billing.notices import alerts
from billing.rails.payments_in import cost_reference
from billing.reconciliation.reconciling import CORRECTIONS_LOCK, newest
from billing.states import CorrectionState
from billing.transfer_codes import TransferCode
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock
from marketplace.foundation.errors import NotFound
from marketplace.foundation.states import advance, record_birth

APPROVER_AFTER: Final = timedelta(hours=48)  # as long as a role of the contract waits
WATCHED_FOR: Final = timedelta(days=7)
WATCHED_MAX: Final = 100
REPORT_AGE_MAX: Final = timedelta(hours=2)  # reconciliations come every hour, and by hand
WHY_CHARACTERS_MIN: Final = 10
WHY_CHARACTERS_MAX: Final = 2_000
OPEN_ONCE: Final = "one_open_correction_of_a_difference"
PERMISSION: Final = "billing.change_ledgercorrection"
AGAINST: Final = (
    AccountKind.OPERATOR_CASH,
    AccountKind.STRIPE_IN_TRANSIT,
    AccountKind.STRIPE_FEE_EXPENSE,
    AccountKind.GAS_EXPENSE,
    AccountKind.CHARGEBACK_LOSS,
    AccountKind.ROUNDING,
    AccountKind.CUSTOMER_AVAILABLE,
    AccountKind.PROVIDER_AVAILABLE,
)


def propose(
    ref: str, *, against: str, why: str, by: User, owner_id: UUID | None = None, mirror: str = "", rail: str = ""
) -> LedgerCorrection:
    """Write down what would make the difference of this reference disappear; nothing moves. Raises CorrectionRefused.

    An empty `ref` is the sum that differs although every movement agrees; `mirror` and `rail` tell two of them apart.
    """
    _require_operator(by)
    _check_words(against, why, owner_id)
    report, difference = _find(ref, mirror, rail)
    if against == difference.account_kind:
        raise CorrectionRefused(why=f"{against} is the account that differs; name where the money came from, or went")
    correction = LedgerCorrection(
        rail=difference.rail,
        mirror=difference.account_kind,
        asset_id=difference.asset_id,
        ref=difference.ref,
        amount=difference.outside - difference.ledger,
        against=against,
        owner_id=owner_id,
        why=why.strip(),
        report=report,
        proposer_id=by.pk,
        proposed_by=by.email,
    )
    try:
        with transaction.atomic():
            correction.save(force_insert=True)
            record_birth(correction, actor=by.email, data={"why": correction.why, "amount": str(correction.amount)})
            message = (
                f"{by.email} proposes to correct the ledger by {correction.asset.show(int(correction.amount))} "
                f"({ref or 'a sum'}, against {against}): {correction.why} Another operator approves or rejects it."
            )
            alerts.raise_once(_alert_key(correction), kind="ledger_correction", subject=correction.pk, message=message)
    except IntegrityError as error:
        if _constraint_of(error) != OPEN_ONCE:
            raise
        raise CorrectionRefused(why="a correction of this difference is proposed already; decide that one") from None
    return correction


def approve(correction_id: UUID, *, by: User) -> LedgerCorrection:
    """Post it, once, by somebody else than its proposer, while the difference stands. Raises CorrectionRefused.

    Raises InsufficientFunds or AccountFrozen where an owner's account cannot give it.
    """
    _require_operator(by)
    with transaction.atomic():
        _wait_for_reports_that_begin()
        correction = _lock(correction_id)
        if correction.proposer_id == by.pk:
            raise CorrectionRefused(why="nobody approves what they proposed; another operator has to")
        _require_long_known(by, correction)
        _, difference = _find(correction.ref, correction.mirror, correction.rail)
        if difference.outside - difference.ledger != correction.amount:
            raise CorrectionRefused(why="the difference is another one by now; reject this, and propose it anew")
        _post(correction, difference)
        return _decide(correction, CorrectionState.APPROVED, by)


def reject(correction_id: UUID, *, by: User) -> LedgerCorrection:
    """It will not be posted. Raises CorrectionRefused where it was decided before."""
    _require_operator(by)
    with transaction.atomic():
        return _decide(_lock(correction_id), CorrectionState.REJECTED, by)


def watch() -> None:
    """Raise an alert for each operator who became one lately; none for the first one of a marketplace."""
    staff = User.objects.exclude(staff_since=None)
    first = staff.order_by("staff_since").first()
    if first is None:
        return
    lately = staff.filter(staff_since__gt=clock.now() - WATCHED_FOR).exclude(pk=first.pk)
    for user in lately.order_by("-staff_since")[:WATCHED_MAX]:
        assert user.staff_since is not None  # noqa: S101  the query asks for it
        message = (
            f"{user.email} has been an operator since {user.staff_since:%Y-%m-%d %H:%M} UTC. If none of you made them "
            "one, somebody has the session of one of you: deactivate it in the admin, *Users*, and set new passwords."
        )
        key = f"operator/{user.pk}/{user.staff_since:%Y-%m-%dT%H:%M:%S}"
        if not Alert.objects.filter(key=key).exists():  # who acknowledged or closed it has seen it
            alerts.raise_once(key, kind="new_operator", subject=user.pk, message=message)


def _require_long_known(by: User, correction: LedgerCorrection) -> None:
    """The approver was an operator, with the second factor that they show, well before this was proposed."""
    before = correction.proposed_at - APPROVER_AFTER
    user = User.objects.get(pk=by.pk)
    moments = [user.staff_since, user.second_factor_at] if user.second_factor_at else [user.staff_since]
    if any(each is None or each > before for each in moments):
        hours = APPROVER_AFTER // timedelta(hours=1)
        raise CorrectionRefused(
            why=f"{by.email} is too new: whoever approves was an operator, with the same second factor, for {hours} "
            "hours when it was proposed; another one approves it, or it is proposed anew then"
        )


def _require_operator(by: User) -> None:
    if not (by.is_active and by.is_staff and by.has_perm(PERMISSION)):
        raise CorrectionRefused(why=f"{by.email} may not: it takes a member of staff with the right {PERMISSION}")


def _check_words(against: str, why: str, owner_id: UUID | None) -> None:
    if against not in AGAINST:
        raise CorrectionRefused(why=f"{against} is none of {', '.join(AGAINST)}")
    if (against in OWNED_KINDS) != (owner_id is not None):
        is_owned = against in OWNED_KINDS
        why_not = "is somebody's: name the organisation's id as its owner" if is_owned else "has no owner"
        raise CorrectionRefused(why=f"{against} {why_not}")
    if owner_id is not None and not Organisation.objects.filter(pk=owner_id).exists():
        raise CorrectionRefused(why=f"there is no organisation {owner_id}")
    if not WHY_CHARACTERS_MIN <= len(why.strip()) <= WHY_CHARACTERS_MAX:
        raise CorrectionRefused(why=f"the reason takes {WHY_CHARACTERS_MIN} to {WHY_CHARACTERS_MAX} characters")


def _find(ref: str, mirror: str, rail: str) -> tuple[Reconciliation, Difference]:
    """The one difference of this reference in the newest report; raises CorrectionRefused."""
    report = newest()
    if report is None or report.started_at < clock.now() - REPORT_AGE_MAX:
        raise CorrectionRefused(why="there is no new reconciliation; run `souk ledger reconcile` first")
    named = {"account_kind": mirror} if mirror else {}
    named |= {"rail": rail} if rail else {}
    found = list(report.differences.filter(ref=ref, explanation="", **named).order_by("pk")[:2])
    if not found:
        raise CorrectionRefused(why=f"the newest reconciliation has no unexplained difference {ref or 'of a sum'}")
    if len(found) > 1:
        raise CorrectionRefused(why="several differences have this reference; name the mirror and the rail too")
    _require_not_corrected(report, found[0])
    return report, found[0]


def _require_not_corrected(report: Reconciliation, difference: Difference) -> None:
    """A report knows nothing of what was approved after it began; raises CorrectionRefused."""
    approved = LedgerCorrection.objects.filter(state=CorrectionState.APPROVED, decided_at__gte=report.started_at)
    same = {"rail": difference.rail, "mirror": difference.account_kind, "asset": difference.asset_id}
    if approved.filter(ref=difference.ref, **same).exists():
        raise CorrectionRefused(why="this was corrected after the newest reconciliation began; reconcile again")


def _wait_for_reports_that_begin() -> None:
    """Until the commit no report begins, so that one with a later time has seen what is booked here."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [CORRECTIONS_LOCK])


def _lock(correction_id: UUID) -> LedgerCorrection:
    correction = LedgerCorrection.objects.select_for_update().filter(pk=correction_id).first()
    if correction is None:
        raise NotFound("There is no such correction.")
    if correction.state != CorrectionState.PROPOSED:
        raise CorrectionRefused(why=f"it was {correction.state} by {correction.decided_by} before")
    return correction


def _post(correction: LedgerCorrection, difference: Difference) -> None:
    """Between the mirror and the other account; who booked a movement by the usual way is found under the lock.

    A position is a sum: nothing books it by its name but another correction.
    """
    is_movement = difference.kind != Difference.Kind.POSITION
    if is_movement:
        _claim(correction)
    asset_id = correction.asset_id
    mirror, other = open_accounts(
        [
            AccountName(AccountKind(correction.mirror), asset_id=asset_id),
            AccountName(AccountKind(correction.against), correction.owner_id, asset_id=asset_id),
        ]
    )
    lock_accounts({account.pk for account in (mirror, other) if account.is_summed})
    if is_movement and _booked(mirror, correction.ref) != difference.ledger:
        raise CorrectionRefused(why="it was booked meanwhile; reconcile again")
    amount = int(correction.amount)
    debit, credit = (mirror, other) if amount > 0 else (other, mirror)
    new = ledger.NewTransfer(debit, credit, abs(amount), TransferCode.CORRECTION, external_ref=correction.booked_ref)
    ledger.post([new], group_id=correction.pk)


def _booked(mirror: Account, ref: str) -> int:
    """By how much the ledger has moved the mirror under this reference, as the reconciliation counts it."""
    sums = [
        rows.filter(external_ref=ref, mode__in=["single", "post"]).aggregate(sum=Sum("amount"))["sum"] or 0
        for rows in (mirror.debits, mirror.credits)
    ]
    return int(sums[0] - sums[1])


def _claim(correction: LedgerCorrection) -> None:
    """A later event about the same entry finds it booked. Before the accounts' locks: an event claims first.

    The reference is the entry's id, or the name of the transfer that it moved (`booking.ref_of`): `booking.take` asks
    for both.
    """
    entry = correction.ref.removesuffix(cost_reference(""))
    StripeBooking.objects.get_or_create(ref=entry[:120], defaults={"group_id": correction.pk})


def _decide(correction: LedgerCorrection, state: CorrectionState, by: User) -> LedgerCorrection:
    decided = advance(
        correction,
        state,
        actor=by.email,
        data={"why": correction.why, "proposed_by": correction.proposed_by},
        decider_id=by.pk,
        decided_by=by.email,
        decided_at=clock.now(),
    )
    alerts.close(_alert_key(correction))
    return decided


def _constraint_of(error: IntegrityError) -> str:
    """The name of the constraint that refused a write; empty where the database names none."""
    diagnostics = getattr(error.__cause__, "diag", None)
    return getattr(diagnostics, "constraint_name", None) or ""


def _alert_key(correction: LedgerCorrection) -> str:
    return f"ledger_correction:{correction.pk}"
