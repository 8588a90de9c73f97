"""What happens to jobs that a contract pays: Alice's wallet signs, Bob's node is paid, the chain goes on."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from billing.chain import escrow as contracts
from billing.chain.transactions import signing
from billing.models import Account, ChainTransaction, Hold, Settlement
from billing.proofs.escrow import (
    HoldAuthorization,
    ReceiptKeyDelegation,
    SignedHoldAuthorization,
    providers_root,
    sign_authorization,
    sign_delegation,
)
from billing.states.chain import TransactionState
from jobs import lifecycle, sweeps
from jobs.escrow import delegations
from jobs.escrow.views import show_hold
from jobs.models import Job, Lease
from jobs.quoting import quotes
from jobs.spec import Spec
from jobs.wire import QuoteView
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.nodes.models import Node
from provider_agent.protocol import AttemptState
from tests import stage
from tests.integration.billing.chain.town import Town

IN_ESCROW: dict[str, Any] = {"payment": {"asset": "TUSD", "mode": "escrow"}}
YEAR_SECONDS = 365 * 86_400
SECONDS_HELD = 3_600  # that have passed on the chain since a hold was opened: so much can be billed


def spec(**changes: Any) -> Spec:
    return stage.spec_of(**(IN_ESCROW | changes))


def node(name: str, **more: Any) -> Node:
    """A node whose agent may be paid in tokens."""
    made = stage.node(name, **more)
    Node.objects.filter(pk=made.pk).update(facts={**made.facts, "has_token_receipts": True})
    made.refresh_from_db()
    return made


def delegate(town: Town, node: Node, *, wallet: str = "Bob", **changes: Any) -> None:
    """The provider's wallet delegates to the node's receipt key, and the marketplace registers that in the contract."""
    domain = contracts.domain_of(town.contract)
    fields: dict[str, Any] = {
        "provider": town.key(wallet).address,
        "receipt_key": node.receipt_address,
        "not_after": int(clock.now().timestamp()) + YEAR_SECONDS,
        "nonce": uuid4().int,
    }
    signed = sign_delegation(town.secret(wallet), ReceiptKeyDelegation(**(fields | changes)), domain)
    delegations.delegate(node, town.contract.asset, signed, domain=domain, actor="bob")


def quote(alice: Organisation, **changes: Any) -> QuoteView:
    view = quotes.make_quote(spec(**changes), alice)
    assert view.quote_id is not None, view.plan
    return view


def sign(
    town: Town, view: QuoteView, *, signer: str = "Alice", providers: list[str] | None = None, **changes: Any
) -> SignedHoldAuthorization:
    """What the wallet signs for a quote."""
    terms = view.escrow
    assert terms is not None
    providers = terms.providers if providers is None else providers
    fields: dict[str, Any] = {
        "job_id": terms.job_id,
        "customer": town.key("Alice").address,
        "asset": terms.token,
        "max_amount": view.cap_units,
        "rate_ceiling_per_hour": terms.rate_ceiling_units_per_hour,
        "parallel_leases": terms.parallel_leases,
        "providers_root": providers_root(providers),
        "deadline": terms.deadline_min + 86_400,
        "nonce": uuid4().int,
    }
    one = HoldAuthorization(**(fields | changes))
    return sign_authorization(town.secret(signer), one, contracts.domain_of(town.contract), providers)


def submit(town: Town, alice: Organisation, **changes: Any) -> Job:
    """Quote, sign, submit."""
    view = quote(alice, **changes)
    assert view.quote_id is not None
    user = alice.members.first()
    return lifecycle.submit(
        organisation=alice,
        user=user,
        spec=spec(**changes),
        quote_id=view.quote_id,
        authorization=sign(town, view),
    )


def running(town: Town, alice: Organisation, **changes: Any) -> tuple[Job, list[Lease]]:
    """A job whose hold is final, on its nodes."""
    job = submit(town, alice, **changes)
    town.follow(2)
    town.pass_seconds(SECONDS_HELD)
    return job, start(job)


def start(job: Job) -> list[Lease]:
    leases = stage.place(job)
    for lease in leases:
        stage.send_report(lease, AttemptState.PREPARING)
        stage.send_report(lease, AttemptState.RUNNING)
    job.refresh_from_db()
    return leases


def use(lease: Lease, *, seconds: float, ms: int) -> None:
    """It was seen to run, and its node sends a receipt."""
    stage.see_running(lease, seconds=seconds)
    stage.bill(lease, ms=ms)


def pass_time(town: Town) -> None:
    """The chain is followed and the sweeps run, until nothing is left to do."""
    for _ in range(6):
        town.follow()
        sweeps.sweep_jobs()


def rebroadcast(town: Town) -> None:
    """What the contract refuses is tried until it is given up."""
    for _ in range(signing.SIMULATIONS_MAX + 1):
        ChainTransaction.objects.filter(state=TransactionState.PLANNED).update(next_at=clock.now())
        town.follow()
    sweeps.sweep_jobs()


def leave_unfinal(town: Town, settings: Any, blocks: int) -> None:
    """From now on the newest blocks are not final yet."""
    settings.SOUK_CHAINS = [settings.SOUK_CHAINS[0] | {"finality": "depth", "confirmations": blocks}]


def assert_nothing_here(*owners: Organisation) -> None:
    """P8 for the other way of paying: no balance, hold or pay of ours was touched."""
    kinds = ["customer_available", "job_hold", "provider_pending", "provider_available", "fee_revenue"]
    assert not Account.objects.filter(kind__in=kinds).exists(), owners
    assert not Hold.objects.exists() and not Settlement.objects.exists()


def assert_split(job: Job) -> None:
    """P8's likeness on the chain: what was settled and what went back is what was held."""
    view = show_hold(job.id)
    assert view is not None
    assert view.settled_units + view.refunded_units == view.held_units
    assert view.settled_units == sum(each.settled_units for each in view.leases)
    for each in view.leases:
        assert each.settled_units == each.pending_units + each.paid_units + each.fee_units + each.refunded_units
