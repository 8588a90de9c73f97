"""What metering promises of every lease, whatever is claimed, lost, repeated or forged: P9, P10, P11, P16, P17."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from eth_account import Account as EthereumAccount
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from billing.charging import metering
from billing.charging.metering import HEARTBEAT_MS, LeaseTerms
from billing.errors import ReceiptForeign, ReceiptGap, ReceiptRefused, ReceiptSignatureInvalid
from billing.models import UsageReceipt
from provider_agent.protocol import (
    MS_PER_HOUR,
    ZERO_HASH,
    ReceiptDomain,
    SignedReceipt,
    charge,
    payable_ms,
    receipt_digest,
    sign_receipt,
)
from provider_agent.protocol import UsageReceipt as Receipt

pytestmark = pytest.mark.django_db

UINT256 = 2**256 - 1
DAY_MS = 24 * MS_PER_HOUR
KEY, MALLORY = (EthereumAccount.create() for _ in range(2))
rates = st.integers(0, 10**30)
times = st.integers(0, 31 * DAY_MS)
addresses = st.binary(min_size=20, max_size=20).map(lambda raw: "0x" + raw.hex())
domains = st.builds(ReceiptDomain, chain_id=st.integers(0, 2**31), verifying_contract=addresses)
few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def terms_of(rate: int, cap: int, **more: Any) -> LeaseTerms:
    return LeaseTerms(uuid4(), uuid4(), KEY.address, rate, cap, **more)


def signed(terms: LeaseTerms, ms: int, last: SignedReceipt | None = None, **changes: Any) -> SignedReceipt:
    """The receipt after `last` as the lease's node signs it, with `changes` in it."""
    fields: dict[str, Any] = {
        "job_id": terms.job_id,
        "lease_id": terms.lease_id,
        "provider": terms.provider,
        "customer": terms.customer,
        "asset": terms.asset,
        "seq": last.receipt.seq + 1 if last else 1,
        "billable_ms": ms,
        "cumulative_amount": charge(terms.rate_per_hour, ms),
        "prev_digest": receipt_digest(last.receipt, terms.domain) if last else ZERO_HASH,
    }
    return sign_receipt(KEY.key.hex(), Receipt(**(fields | changes)), terms.domain)


def chain(terms: LeaseTerms, meter: list[int]) -> list[SignedReceipt]:
    made: list[SignedReceipt] = []
    for ms in sorted(meter):
        made.append(signed(terms, ms, made[-1] if made else None))
    return made


@few
@given(
    rate=rates,
    cap=st.integers(0, 10**36),
    observed_ms=times,
    beyond_ms=st.integers(-3, 3) | times,
    lie=st.integers(-3, 3),
)
@example(rate=3_600_000, cap=10**9, observed_ms=60_000, beyond_ms=1, lie=0)
@example(rate=3_600_000, cap=10**9, observed_ms=60_000, beyond_ms=0, lie=0)
@example(rate=3_600_000, cap=64_999, observed_ms=60_000, beyond_ms=0, lie=0)
@example(rate=3_600_000, cap=10**9, observed_ms=60_000, beyond_ms=0, lie=1)
def test_P09_no_receipt_is_believed_above_the_cap_or_what_was_seen_and_a_heartbeat(
    db: None, rate: int, cap: int, observed_ms: int, beyond_ms: int, lie: int
) -> None:
    claimed_ms = max(0, observed_ms + HEARTBEAT_MS + beyond_ms)
    terms = terms_of(rate, cap)
    amount = max(0, charge(rate, claimed_ms) + lie)
    try:
        metering.accept_receipts(terms, [signed(terms, claimed_ms, cumulative_amount=amount)], observed_ms=observed_ms)
    except ReceiptRefused:
        is_true = lie == 0 or amount == charge(rate, claimed_ms)
        assert not (is_true and amount <= cap and claimed_ms <= observed_ms + HEARTBEAT_MS)
    newest = metering.newest(terms.lease_id)
    charged = newest.cumulative_amount if newest else 0
    assert charged <= cap
    assert charged <= charge(rate, observed_ms + HEARTBEAT_MS)


@given(rate=st.integers(0, UINT256), ms=st.integers(0, 2**63), cuts=st.lists(st.integers(0, 2**63), max_size=20))
@example(rate=1, ms=MS_PER_HOUR, cuts=list(range(0, MS_PER_HOUR, 300_000)))
def test_P10_no_partition_of_the_time_changes_the_charge(rate: int, ms: int, cuts: list[int]) -> None:
    ticks = sorted({0, ms, *(cut % (ms + 1) for cut in cuts)})
    increments = [charge(rate, after) - charge(rate, before) for before, after in pairwise(ticks)]
    assert sum(increments) == charge(rate, ms)
    assert all(increment >= 0 for increment in increments)


@few
@given(rate=rates, meter=st.lists(st.integers(0, DAY_MS), min_size=1, max_size=8), data=st.data())
def test_P10_however_often_the_agent_ticks_the_last_receipt_charges_the_same(
    db: None, rate: int, meter: list[int], data: st.DataObject
) -> None:
    ticks = data.draw(st.lists(st.integers(0, max(meter)), max_size=8))
    charges = set()
    for each in (meter, [*ticks, max(meter)], [max(meter)]):
        terms = terms_of(rate, UINT256)
        metering.accept_receipts(terms, chain(terms, each), observed_ms=DAY_MS)
        newest = metering.newest(terms.lease_id)
        assert newest is not None
        charges.add(newest.cumulative_amount)
    assert charges == {charge(rate, max(meter))}


@given(
    rate=st.integers(0, UINT256), more=st.integers(0, UINT256), ms=st.integers(0, 2**63), later=st.integers(0, 2**63)
)
def test_P11_the_charge_rises_with_time_and_rate_and_is_nothing_for_no_time(
    rate: int, more: int, ms: int, later: int
) -> None:
    assert charge(rate, 0) == charge(0, ms) == 0
    assert charge(rate, ms) <= charge(rate, ms + later)
    assert charge(rate, ms) <= charge(rate + more, ms)


@given(rate=st.integers(1, UINT256), cap=st.integers(0, UINT256))
def test_P11_a_cap_pays_for_exactly_as_long_as_it_lasts(rate: int, cap: int) -> None:
    longest = payable_ms(rate, cap)
    assert charge(rate, longest) <= cap
    assert rate * (longest + 1) > cap * MS_PER_HOUR


@few
@given(rate=rates, meter=st.lists(times, min_size=1, max_size=6), data=st.data())
def test_P16_whatever_is_lost_shuffled_or_repeated_the_amount_is_the_same(
    db: None, rate: int, meter: list[int], data: st.DataObject
) -> None:
    terms = terms_of(rate, UINT256)
    made = chain(terms, meter)
    sent = data.draw(st.lists(st.lists(st.sampled_from(made), max_size=4), max_size=8))
    seen = 0
    for append in [*sent, *([each] for each in made)]:
        try:
            seq = metering.accept_receipts(terms, append, observed_ms=31 * DAY_MS)
        except ReceiptGap as gap:
            seq = gap.seq
        assert seq >= seen
        seen = seq
    rows = list(UsageReceipt.objects.of_lease(terms.lease_id))
    assert [row.seq for row in rows] == list(range(1, len(made) + 1))
    assert [row.as_signed() for row in rows] == made
    amounts = [row.cumulative_amount for row in rows]
    assert amounts == sorted(amounts) and amounts[-1] == charge(rate, max(meter))


FORGED = [
    "signature",
    "signer",
    "job_id",
    "lease_id",
    "provider",
    "customer",
    "asset",
    "chain_id",
    "contract",
    "no domain",
]


@pytest.mark.parametrize("field", FORGED)
@settings(few, max_examples=8)
@given(
    domain=domains,
    parties=st.fixed_dictionaries({"provider": addresses, "customer": addresses, "asset": addresses}),
    data=st.data(),
)
def test_P17_a_receipt_counts_only_if_signature_lease_parties_and_domain_match(
    db: None, field: str, domain: ReceiptDomain, parties: dict[str, str], data: st.DataObject
) -> None:
    terms = terms_of(3_600_000, UINT256, domain=domain, **parties)
    good = signed(terms, 1000)
    expected: type[ReceiptRefused] = ReceiptSignatureInvalid
    if field == "signature":
        place = data.draw(st.integers(2, 131))
        digit = format(int(good.signature[place], 16) ^ data.draw(st.integers(1, 15)), "x")
        forged = good.model_copy(update={"signature": good.signature[:place] + digit + good.signature[place + 1 :]})
    elif field == "signer":
        forged = sign_receipt(MALLORY.key.hex(), good.receipt, domain)
    elif field in ("chain_id", "contract", "no domain"):
        chain_id = domain.chain_id + data.draw(st.integers(1, 2**31))
        other = domain.verifying_contract[:-1] + format(int(domain.verifying_contract[-1], 16) ^ 1, "x")
        elsewhere = {
            "chain_id": ReceiptDomain(chain_id=chain_id, verifying_contract=domain.verifying_contract),
            "contract": ReceiptDomain(chain_id=domain.chain_id, verifying_contract=other),
            "no domain": ReceiptDomain(chain_id=domain.chain_id + 1),
        }
        forged = sign_receipt(KEY.key.hex(), good.receipt, elsewhere[field])
    else:
        value: Any = uuid4() if field.endswith("_id") else data.draw(addresses.filter(lambda a: a != parties[field]))
        forged, expected = signed(terms, 1000, **{field: value}), ReceiptForeign
    with pytest.raises(expected):
        metering.accept_receipts(terms, [forged], observed_ms=60_000)
    assert not UsageReceipt.objects.filter(lease_id=terms.lease_id).exists()
    assert metering.accept_receipts(terms, [good], observed_ms=60_000) == 1
