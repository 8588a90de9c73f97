"""Contract and model agree after every step: events, errors, every balance and every total.

The settler lies too: it provides under its own name, settles what it likes when it likes, closes and reopens.
SOUK_MONEY_STEPS says how many steps at least; the default is what `make test` has time for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from web3.contract import Contract

from tests.unit.billing.contract import merkle
from tests.unit.billing.contract.chain import Chain, Event, Refused, address
from tests.unit.billing.contract.model import PERIOD_MAX, Hold, Lease, Model
from tests.unit.billing.contract.scene import (
    DAY,
    EVIDENCE,
    HOUR,
    HOUR_MS,
    Scene,
    id32,
    receipt_key,
    role_id,
)

STEPS_QUICK = 200
STEPS_EACH = 50  # of one sequence, before the next starts
STEPS_WANTED = int(os.environ.get("SOUK_MONEY_STEPS", STEPS_QUICK))
LONGEST_SECONDS = 1_800
MONEY = ("alice", "anna", "bob", "ben", "mallory", "settler", "fee")
RATE = 1_000

customers = st.sampled_from(["alice", "anna", "mallory"])
providers = st.sampled_from(["bob", "ben", "mallory", "settler"])
payees = st.sampled_from(["bob", "ben", "alice"])
jobs = st.sampled_from([f"job {i}" for i in range(5)])
leases = st.sampled_from([f"lease {i}" for i in range(6)])
offences = st.sampled_from([f"offence {i}" for i in range(4)])
nonces = st.integers(1, 40)
amounts = st.integers(0, 20) | st.integers(0, 3_000)
roles = st.sampled_from(["slasher", "arbiter"])
successors = st.sampled_from(["ben", "mallory"])
seldom = st.integers(0, 9).map(lambda value: value == 0)


@cache
def _world() -> tuple[Scene, Contract]:
    scene = Scene.make(Chain(), close_seconds=2 * HOUR)
    return scene, scene.chain.deploy("Lens")


taken: Counter[str] = Counter()  # what was done, and each refusal, over all sequences of this process


class EscrowMachine(RuleBasedStateMachine):
    """Everybody does everything, mostly in good order."""

    def __init__(self) -> None:
        super().__init__()
        self.scene, self.lens = _world()
        self.before = self.scene.chain.snapshot()
        self.model = Model(self.scene.terms)
        self.is_checked = False

    def teardown(self) -> None:
        self.scene.chain.revert(self.before)

    def step(self, who: str, function: str, args: tuple[Any, ...], said: Callable[[], list[Event]]) -> None:
        """Model and chain do the same thing, or refuse it for the same reason."""
        self.model.now = self.scene.now()
        try:
            expected = said()
        except Refused as refusal:
            taken[f"{function} refused: {refusal}"] += 1
            self.scene.refuses(str(refusal), who, function, *args)
            return
        taken[function] += 1
        self.is_checked = False
        events = self.scene.do(who, function, *args)
        assert [event.name for event in events] == [event.name for event in expected]
        for event, wanted in zip(events, expected, strict=True):
            assert wanted.args.items() <= event.args.items(), event.name

    @invariant()
    def every_book_agrees(self) -> None:
        """All balances and totals are the model's, and what is owed is there. A refusal changed nothing."""
        taken["steps"] += 1
        if self.is_checked:
            return
        self.is_checked = True
        names = [address(name) for name in MONEY]
        rows, totals = self.scene.chain.view(self.lens, "read", self.scene.escrow.address, names)
        assert [list(row) for row in rows] == [self.model.row(name) for name in MONEY]
        assert list(totals) == self.model.totals()
        assert totals[7] <= totals[8]

    # --- the beginning

    @initialize(allowed=st.booleans())
    def begin(self, allowed: bool) -> None:
        for name in ("alice", "anna"):
            self.deposit(name, 20_000)
        for nonce, name in enumerate(("bob", "ben", "settler")):
            self.register(name, 100 + nonce, 30 * DAY, False)
        self.open_hold("settler", "alice", "job 0", 9_000, 101, DAY, allowed, 2, False)
        self.open_hold("settler", "anna", "job 0", 5_000, 102, 2 * DAY, False, 1, False)
        self.scene.pass_hours(2)
        self.settle("alice", "job 0", "lease 0", "bob", 1, 1_000, 1, False)
        self.buy_credits("anna", 4_000)
        self.stake("bob", 2_000)

    # --- time

    @rule(seconds=st.sampled_from([1, 60, HOUR - 1, HOUR, 2 * HOUR, DAY, 7 * DAY]))
    def wait(self, seconds: int) -> None:
        self.scene.chain.at(self.scene.now() + seconds)

    @precondition(lambda self: self.model.leases or self.model.holds)
    @rule(data=st.data(), after=st.integers(-2, 2))
    def wait_for_an_edge(self, data: st.DataObject, after: int) -> None:
        terms = self.scene.terms
        edges = [self.model.refundable_after(hold) for hold in self.model.holds.values() if not hold.closed]
        edges += list(self.model.proposed_roles.values())
        edges += [lease.release_at for lease in self.model.leases.values()]
        edges += [lease.release_at + terms.dispute_seconds for lease in self.model.leases.values()]
        edges = [edge for edge in edges if edge + after > self.scene.now()]
        if edges:
            self.scene.chain.at(data.draw(st.sampled_from(edges)) + after)

    # --- funds

    @rule(who=customers, amount=amounts)
    def deposit(self, who: str, amount: int) -> None:
        self.step(who, "deposit", (amount,), lambda: self.model.deposit(who, amount))

    @rule(who=st.sampled_from(MONEY), amount=amounts)
    def withdraw(self, who: str, amount: int) -> None:
        self.step(who, "withdraw", (amount,), lambda: self.model.withdraw(who, amount))

    @rule(who=st.sampled_from(MONEY))
    def withdraw_all(self, who: str) -> None:
        amount = self.model.available[who]
        self.step(who, "withdraw", (amount,), lambda: self.model.withdraw(who, amount))

    @rule(amount=st.integers(1, 50))
    def give(self, amount: int) -> None:
        self.scene.chain.do(self.scene.token, "mallory", "transfer", self.scene.escrow.address, amount)
        self.model.give("mallory", amount)
        self.is_checked = False

    @rule(who=st.sampled_from(["admin", "settler"]))
    def sweep(self, who: str) -> None:
        self.step(who, "sweepSurplus", (address("ben"),), lambda: self.model.sweep(who, "ben"))

    @rule(who=customers, nonce=nonces)
    def cancel_nonce(self, who: str, nonce: int) -> None:
        self.step(who, "cancelNonce", (nonce,), lambda: self.model.cancel_nonce(who, nonce))

    @rule(is_on=seldom, who=st.sampled_from(["pauser", "pauser", "mallory"]))
    def pause(self, is_on: bool, who: str) -> None:
        self.step(who, "pause" if is_on else "unpause", (), lambda: self.model.pause(who, is_on))

    # --- jobs

    @rule(
        who=st.sampled_from(["settler", "settler", "alice", "mallory"]),
        customer=customers,
        job=jobs,
        amount=amounts,
        nonce=nonces,
        seconds=st.sampled_from([-1, 0, HOUR, DAY, 30 * DAY, PERIOD_MAX, PERIOD_MAX + 1]),
        is_bound=st.booleans(),
        parallel=st.integers(0, 3),
        is_forged=seldom,
    )
    def open_hold(
        self,
        who: str,
        customer: str,
        job: str,
        amount: int,
        nonce: int,
        seconds: int,
        is_bound: bool,
        parallel: int,
        is_forged: bool,
    ) -> None:
        allowed = ("bob", "ben") if is_bound else ()
        deadline = self.scene.now() + seconds
        signed = self.scene.authorize(
            customer,
            job,
            signer="mallory" if is_forged else "",
            maxAmount=amount,
            rateCeilingPerHour=RATE,
            parallelLeases=parallel,
            providersRoot=merkle.root([merkle.provider_leaf(address(name)) for name in allowed])
            if allowed
            else bytes(32),
            deadline=deadline,
            nonce=nonce,
        )
        hold = Hold(customer, deadline, amount, RATE, allowed, parallel)
        is_signed = not is_forged or customer == "mallory"
        self.step(who, "openHold", signed, lambda: self.model.open_hold(who, job, hold, nonce, is_signed))

    @rule(provider=providers, nonce=nonces, seconds=st.sampled_from([-1, 0, HOUR, 30 * DAY]), is_forged=seldom)
    def register(self, provider: str, nonce: int, seconds: int, is_forged: bool) -> None:
        not_after = self.scene.now() + seconds
        signer = "alice" if is_forged else ""
        signed = self.scene.delegate(provider, signer, notAfter=not_after, nonce=nonce)
        said = lambda: self.model.register(provider, not_after, nonce, not is_forged)  # noqa: E731
        self.step("mallory", "registerReceiptKey", signed, said)

    @rule(provider=providers, is_real=seldom)
    def revoke(self, provider: str, is_real: bool) -> None:
        if is_real:
            key = receipt_key(provider).address
            self.step(provider, "revokeReceiptKey", (key,), lambda: self.model.revoke(provider))

    @rule(
        customer=customers,
        job=jobs,
        lease=leases,
        provider=providers,
        newer=st.integers(0, 2),
        added=amounts | st.just(-1),
        hours=st.integers(0, 12),
        is_forged=seldom,
    )
    def settle(
        self, customer: str, job: str, lease: str, provider: str, newer: int, added: int, hours: int, is_forged: bool
    ) -> None:
        before = self.model.leases.get((customer, lease)) or Lease(customer, job, provider)
        hold = self.model.holds.get((customer, job))
        made = Lease(
            customer,
            job,
            provider,
            seq=max(1, before.seq + newer),
            ms=max(before.ms, hours * HOUR_MS),
            settled=max(0, before.settled + added),
        )
        signed = self.scene.receipt(
            job,
            lease,
            provider=provider,
            customer=customer,
            signer=receipt_key("alice") if is_forged else None,
            seq=made.seq,
            billable_ms=made.ms,
            cumulative_amount=made.settled,
        )
        tree = [merkle.provider_leaf(address(name)) for name in ("bob", "ben")]
        proof = merkle.proof(tree, tree[0 if provider == "bob" else 1]) if hold and hold.allowed else []
        said = lambda: self.model.settle("settler", lease, made, not is_forged)  # noqa: E731
        self.step("settler", "settleLease", (*signed, proof), said)

    @rule(lease=leases, who=customers)
    def challenge(self, lease: str, who: str) -> None:
        self.step(who, "challenge", (id32(lease), EVIDENCE), lambda: self.model.challenge(who, lease))

    @rule(
        customer=customers,
        lease=leases,
        share=st.integers(0, 4),
        off=seldom,
        who=st.sampled_from(["arbiter", "arbiter", "settler", "mallory"]),
    )
    def resolve(self, customer: str, lease: str, share: int, off: bool, who: str) -> None:
        known = self.model.leases.get((customer, lease))
        pending = known.pending if known else 0
        parts = (pending * share // 4, pending - pending * share // 4 + off)
        args = (address(customer), id32(lease), *parts)
        self.step(who, "resolve", args, lambda: self.model.resolve(who, customer, lease, *parts))

    @rule(customer=customers, lease=leases)
    def finalize(self, customer: str, lease: str) -> None:
        args = (address(customer), id32(lease))
        self.step("mallory", "finalize", args, lambda: self.model.finalize(customer, lease))

    @rule(customer=customers, job=jobs, who=st.sampled_from(["settler", "alice"]), is_meant=seldom)
    def close_hold(self, customer: str, job: str, who: str, is_meant: bool) -> None:
        if is_meant:
            args = (address(customer), id32(job))
            self.step(who, "closeHold", args, lambda: self.model.close_hold(who, customer, job))

    @rule(customer=customers, job=jobs, who=st.sampled_from(["arbiter", "pauser", "settler"]))
    def reopen_hold(self, customer: str, job: str, who: str) -> None:
        args = (address(customer), id32(job))
        self.step(who, "reopenHold", args, lambda: self.model.reopen_hold(who, customer, job))

    @rule(customer=customers, job=jobs)
    def refund_expired(self, customer: str, job: str) -> None:
        args = (address(customer), id32(job))
        self.step("mallory", "refundExpired", args, lambda: self.model.refund_expired(customer, job))

    # --- roles

    @rule(who=st.sampled_from(["admin", "admin", "mallory"]), role=roles, account=successors)
    def propose_role(self, who: str, role: str, account: str) -> None:
        args = (role_id(role), address(account))
        self.step(who, "proposeRole", args, lambda: self.model.propose_role(who, role, account))

    @rule(who=st.sampled_from(["admin", "arbiter", "settler"]), role=roles, account=successors, is_meant=seldom)
    def veto_role(self, who: str, role: str, account: str, is_meant: bool) -> None:
        if is_meant:
            args = (role_id(role), address(account))
            self.step(who, "vetoRole", args, lambda: self.model.veto_role(who, role, account))

    @rule(who=st.sampled_from(["admin", "admin", "mallory"]), role=roles, account=successors)
    def grant_role(self, who: str, role: str, account: str) -> None:
        args = (role_id(role), address(account))
        self.step(who, "grantRole", args, lambda: self.model.grant_role(who, role, account))

    @rule(who=st.sampled_from(["admin", "mallory"]), role=roles, account=successors, is_meant=seldom)
    def revoke_role(self, who: str, role: str, account: str, is_meant: bool) -> None:
        if is_meant:
            args = (role_id(role), address(account))
            self.step(who, "revokeRole", args, lambda: self.model.revoke_role(who, role, account))

    @precondition(lambda self: self.model.proposed_roles)
    @rule(data=st.data())
    def grant_rightly(self, data: st.DataObject) -> None:
        role, account = data.draw(st.sampled_from(sorted(self.model.proposed_roles)))
        self.scene.chain.at(max(self.scene.now(), self.model.proposed_roles[role, account]))
        self.grant_role("admin", role, account)

    # --- the same, mostly as they should be

    @rule(
        customer=st.sampled_from(["alice", "anna"]),
        amount=st.integers(1, 4_000),
        is_bound=st.booleans(),
        data=st.data(),
    )
    def open_rightly(self, customer: str, amount: int, is_bound: bool, data: st.DataObject) -> None:
        new = [f"job {i}" for i in range(5) if (customer, f"job {i}") not in self.model.holds]
        if new:
            nonce = 1_000 + len(self.model.nonces)
            job = data.draw(st.sampled_from(new))
            self.open_hold("settler", customer, job, amount, nonce, DAY, is_bound, 2, False)

    @precondition(lambda self: self.model.is_settleable())
    @rule(data=st.data(), lease=leases, provider=st.sampled_from(["bob", "ben"]), share=st.integers(1, 4))
    def settle_rightly(self, data: st.DataObject, lease: str, provider: str, share: int) -> None:
        usable = [key for key, hold in self.model.holds.items() if hold.remaining and not hold.closed]
        customer, job = data.draw(st.sampled_from(usable))
        known = self.model.leases.get((customer, lease))
        job, provider = (known.job, known.provider) if known else (job, provider)
        hold = self.model.holds[customer, job]
        added = -(-hold.remaining * share // 4)
        hours = -(-((known.settled if known else 0) + added) // RATE)
        last = self.model.refundable_after(hold)
        ready = hold.opened_at + hours * HOUR
        if self.scene.now() < ready <= last:
            self.scene.chain.at(ready)
        self.settle(customer, job, lease, provider, 1, added, hours, False)

    @precondition(lambda self: any(lease.pending and not lease.challenged for lease in self.model.leases.values()))
    @rule(data=st.data())
    def challenge_rightly(self, data: st.DataObject) -> None:
        waiting = [key for key, lease in self.model.leases.items() if lease.pending and not lease.challenged]
        customer, name = data.draw(st.sampled_from(waiting))
        self.challenge(name, customer)

    @precondition(lambda self: any(lease.challenged for lease in self.model.leases.values()))
    @rule(data=st.data(), share=st.integers(0, 4))
    def resolve_rightly(self, data: st.DataObject, share: int) -> None:
        disputed = [key for key, lease in self.model.leases.items() if lease.challenged]
        self.resolve(*data.draw(st.sampled_from(disputed)), share, False, "arbiter")

    @precondition(lambda self: any(lease.pending for lease in self.model.leases.values()))
    @rule(data=st.data())
    def finalize_rightly(self, data: st.DataObject) -> None:
        pending = {key: lease for key, lease in self.model.leases.items() if lease.pending}
        key = data.draw(st.sampled_from(list(pending)))
        self.scene.chain.at(max(self.scene.now(), self.model.due_at(pending[key])))
        self.finalize(*key)

    @precondition(lambda self: any(hold.remaining and not hold.closes_at for hold in self.model.holds.values()))
    @rule(data=st.data(), is_meant=seldom)
    def close_rightly(self, data: st.DataObject, is_meant: bool) -> None:
        usable = [key for key, hold in self.model.holds.items() if hold.remaining and not hold.closes_at]
        customer, job = data.draw(st.sampled_from(usable))
        self.close_hold(customer, job, "settler", is_meant)

    @precondition(lambda self: any(hold.closes_at and not hold.closed for hold in self.model.holds.values()))
    @rule(data=st.data(), is_stopped=seldom)
    def end_a_close(self, data: st.DataObject, is_stopped: bool) -> None:
        closing = [key for key, hold in self.model.holds.items() if hold.closes_at and not hold.closed]
        customer, job = data.draw(st.sampled_from(closing))
        if is_stopped:
            self.reopen_hold(customer, job, "pauser")
            return
        after = self.model.refundable_after(self.model.holds[customer, job]) + 1
        self.scene.chain.at(max(self.scene.now(), after))
        self.refund_expired(customer, job)

    @precondition(lambda self: self.model.proposed)
    @rule(name=payees)
    def claim_rightly(self, name: str) -> None:
        assert self.model.proposed
        self.scene.chain.at(max(self.scene.now(), self.model.proposed[2]))
        self.claim(name, 0)

    @precondition(lambda self: any(stake.leaving for stake in self.model.stakes.values()))
    @rule(data=st.data())
    def unstake_rightly(self, data: st.DataObject) -> None:
        who = data.draw(st.sampled_from([name for name, stake in self.model.stakes.items() if stake.leaving]))
        self.scene.chain.at(max(self.scene.now(), self.model.stakes[who].available_at))
        self.unstake(who)

    # --- credits

    @rule(who=customers, amount=amounts)
    def buy_credits(self, who: str, amount: int) -> None:
        args = (id32("organisation"), amount)
        self.step(who, "buyCredits", args, lambda: self.model.buy_credits(who, amount))

    @rule(
        who=st.sampled_from(["publisher", "publisher", "settler"]),
        added=st.dictionaries(payees, amounts, min_size=1),
        off=st.sampled_from([0, 0, 0, -5, 5]),
    )
    def propose(self, who: str, added: dict[str, int], off: int) -> None:
        promised = {name: self.model.claimed[name] + amount for name, amount in added.items()}
        total = max(0, sum((dict(self.model.claimed) | promised).values()) + off)
        leaves = [self.scene.leaf(name, cumulative) for name, cumulative in promised.items()]
        said = lambda: self.model.propose(who, promised, total)  # noqa: E731
        self.step(who, "proposeRoot", (merkle.root(leaves), total), said)

    @rule(who=st.sampled_from(["arbiter", "pauser", "publisher"]), is_meant=seldom)
    def veto(self, who: str, is_meant: bool) -> None:
        if is_meant:
            self.step(who, "vetoRoot", (), lambda: self.model.veto(who))

    @rule(name=payees, off=st.sampled_from([0, 0, 0, 1]))
    def claim(self, name: str, off: int) -> None:
        self.model.now = self.scene.now()
        promised, _ = self.model.open_root()
        leaves = [self.scene.leaf(each, cumulative) for each, cumulative in promised.items()]
        cumulative = promised.get(name, 10) + off
        proof = merkle.proof(leaves, self.scene.leaf(name, promised[name])) if name in promised else []
        args = (address(name), cumulative, proof)
        self.step("mallory", "claim", args, lambda: self.model.claim(name, cumulative))

    # --- stakes

    @rule(who=providers, amount=amounts)
    def stake(self, who: str, amount: int) -> None:
        if who != "settler":  # it has no tokens to begin with, and has given no allowance
            self.step(who, "stake", (amount,), lambda: self.model.stake(who, amount))

    @rule(who=providers, amount=amounts)
    def request_unstake(self, who: str, amount: int) -> None:
        self.step(who, "requestUnstake", (amount,), lambda: self.model.request_unstake(who, amount))

    @rule(who=providers)
    def unstake(self, who: str) -> None:
        self.step(who, "unstake", (), lambda: self.model.unstake(who))

    @rule(who=st.sampled_from(["slasher", "slasher", "mallory"]), provider=providers, amount=amounts, offence=offences)
    def slash(self, who: str, provider: str, amount: int, offence: str) -> None:
        args = (address(provider), amount, id32(offence), EVIDENCE)
        self.step(who, "slash", args, lambda: self.model.slash(who, provider, amount, offence))

    @rule(who=st.sampled_from(["arbiter", "arbiter", "slasher"]), customer=customers, amount=amounts, offence=offences)
    def compensate(self, who: str, customer: str, amount: int, offence: str) -> None:
        args = (address(customer), amount, id32(offence))
        self.step(who, "compensate", args, lambda: self.model.compensate(who, customer, amount, offence))


@pytest.mark.escrow_model
@pytest.mark.timeout(LONGEST_SECONDS)
def test_model_and_chain_agree_after_every_step() -> None:
    taken.clear()
    run_state_machine_as_test(
        EscrowMachine,
        settings=settings(
            max_examples=-(-STEPS_WANTED // STEPS_EACH),
            stateful_step_count=STEPS_EACH,
            deadline=None,
            derandomize=STEPS_WANTED == STEPS_QUICK,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
        _min_steps=STEPS_EACH,
    )
    assert taken["steps"] >= STEPS_WANTED
    print("\n".join(f"{count:6} {what}" for what, count in taken.most_common()))
