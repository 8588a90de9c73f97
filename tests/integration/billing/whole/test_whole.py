"""All of billing at once: after every step the ledger is true, and at the end of every sequence so is everything else.

A Stripe that duplicates, reorders, delays, drops and fails, a chain whose blocks come and go, processes that die,
people who lie, and time that passes. SOUK_MONEY_STEPS is the number of steps; the default is what `make test` has time
for. The sequences are always the same; SOUK_MONEY_SEED=N makes others.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.datatree import DataTree, TreeRecordingObserver
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.stateful import run_state_machine_as_test

from tests.fakes.stripe import WebhookFaults
from tests.integration.billing.whole import ending
from tests.integration.billing.whole.dying import DEATHS, SEAMS, Dying, dying_at_a_write
from tests.integration.billing.whole.leaving import at_banks
from tests.integration.billing.whole.machine import taken
from tests.integration.billing.whole.paying import receive
from tests.integration.billing.whole.world import DAY, make_world

STEPS_QUICK = 150
SEED = int(os.environ.get("SOUK_MONEY_SEED", "1"))
STEPS_WANTED = int(os.environ.get("SOUK_MONEY_STEPS", STEPS_QUICK))
STRIDE = 31  # has no divisor in common with any number of rules that there may be
LONGEST_SECONDS = 3_600
IS_LONG = STEPS_WANTED >= 2_000
RAREST = 12  # rules; half of all steps are one of those with the fewest effects so far
# Hypothesis draws from constants of our source, so any change of it makes other sequences: what those of a long run
# happened not to do, more of them have to.
MORE_ROUNDS_MAX = 4
ROUND_STEPS = 500
DAYS_AT_BANK = 3
WRITES_OF_A_POLL = 2  # its events, and where it was left
STEPS_EACH = 100 if STEPS_WANTED > STEPS_QUICK else 75  # of one sequence, before the next starts
# What a long run has to have done at least once, and with an effect.
WANTED = """
    ask_for_a_page pay_at_once pay_a_page save_card charge_saved_card set_automatic run_automatic refund
    refund_at_stripe bank_refuses_refund charge_back charged_back_at_once fund_platform deliver work_events_off
    poll sweep line_goes_bad call place extend run receipt_after_the_end settle release windows_pass job_at_once
    contest decide offend give_stake give gifts_expire exchange freeze_or_thaw silence_is_an_answer
    buy_credits deposit withdraw open_hold settle_lease settle_late lease_on_chain challenge resolve wait_on_chain
    close_hold take_back_expired stake request_unstake unstake slash compensate follow_chain reorganise
    join_stripe choose_wallet run_payouts pay_day pay_now follow_payouts bank_sends_back stripe_asks_more
    retry_payout claim ticks reconcile seal wait erase ask_for_nonsense mallory_calls_the_webhook die_at_a_write
"""
OUTCOMES = (
    "withdraw a dispute",
    "bank_decides for us",
    "bank_decides against us",
    "a payout is refused",
    "settle for nothing",
    *DEATHS,
)
# Rules whose effects have other names.
EFFECTS = {
    "bank_decides": ("bank_decides for us", "bank_decides against us"),
    "withdraw_or_answer": ("withdraw a dispute",),
    "dispute_at_once": ("withdraw a dispute",),
    "automatic_at_once": ("run_automatic",),
    "paid_at_once": ("a payout is refused",),
} | {name: (name,) for name in WANTED.split()}


runs = itertools.count(1)


class EveryRule:
    """In place of Hypothesis's choice of some rules."""

    def is_enabled(self, name: str) -> bool:
        return True


class WholeToTheEnd(Dying):
    """Each sequence runs to its end; any rule may come next."""

    failed_after: ClassVar[Counter[str] | None] = None  # what was done before the sequence that failed

    def __init__(self) -> None:
        super().__init__()
        if self.failed_after is not None:
            # Hypothesis runs what failed once more, and then nothing else. Which rule comes next depends on what was
            # done before: without this it would be another sequence, which mostly does not fail.
            taken.clear()
            taken.update(self.failed_after)
        self._done_before = Counter(taken)
        choice = self._rules_strategy
        # Hypothesis leaves out most rules of each sequence, and what needs five of them in a row never happens.
        choice.enabled_rules_strategy = st.just(EveryRule())
        numbers = st.sampled_from(range(2 * len(choice.rules)))
        choice._enabled_rules_strategy = numbers.map(self._chosen).filter(choice._rule_is_enabled)

    def _chosen(self, number: int) -> Any:
        """Any rule, or one of those that seldom had an effect: by chance alone it takes 3,000 steps to reach all."""
        rules = self._rules_strategy.rules
        if number >= len(rules):
            wanted = [rule for rule in rules if rule.function.__name__ in EFFECTS]
            rarest = {name: min(taken[effect] for effect in effects) for name, effects in EFFECTS.items()}
            return sorted(wanted, key=lambda rule: rarest[rule.function.__name__])[number % RAREST]
        # It begins with the simplest sequence, the first of all rules a hundred times: let it do each rule once.
        return rules[(number + STRIDE * self.steps) % len(rules)]

    def teardown(self) -> None:
        error = sys.exc_info()[1]
        try:
            if error is None:
                ending.drain(self)
                ending.check(self)
        except Exception as found:
            error = found
            raise
        finally:
            if isinstance(error, Exception):
                WholeToTheEnd.failed_after = self._done_before
                # Should it go another way the second time, Hypothesis would hide what happened in the first.
                traceback.print_exception(error, file=sys.stdout)
            super().teardown()
        print(f"run {next(runs)}: {taken['steps']} steps, {time.process_time():.0f} s of CPU", flush=True)


def die_at_every_seam() -> None:
    """A sequence without chance; the others meet the same transitions in the middle of everything."""
    machine = WholeToTheEnd()
    try:
        machine.people_come(dice=SEED)
        for seam in SEAMS:
            machine.die(seam=seam, who="Alice", provider="Bob", goes_on=False)
        alive = [death for death in DEATHS if not taken[death]]
        assert not alive, f"nobody died there: {', '.join(alive)}"
        # Every step of chance ends by reading all that waits, so that the worker seldom finds an event: here it does.
        with machine.line_is_good():
            machine.a_payment_was_made("Alice", "Bob")
            machine.work_events_off()
        machine.check_all()
    finally:
        machine.teardown()


def die_as_a_poll_stores() -> None:
    """At each write of the poller, which is not in a transaction: what it did before stays, the rest comes again."""
    machine = WholeToTheEnd()
    try:
        machine.people_come(dice=SEED)
        for nth, is_after in itertools.product(range(1, WRITES_OF_A_POLL + 1), (False, True)):
            machine.ask("Alice", 1_000)
            machine.make_calls()
            pages = [one for one in machine.world.stripe.store.all("checkout.session") if one["status"] == "open"]
            machine.world.stripe.pay_session(pages[0]["id"])
            with dying_at_a_write(nth, is_after=is_after) as death:
                machine.does("poll")
            assert death.has_come, f"a poll writes less than {nth} times"
            machine.check_all()
    finally:
        machine.teardown()


def a_bank_sends_back_and_no_webhook_comes() -> None:
    """A sequence without chance: it has to be found before all events are read again, which would find it too."""
    machine = WholeToTheEnd()
    try:
        machine.people_come(dice=SEED)
        machine.dollars_wait("Alice", "Bob")
        machine.make_calls()
        machine.follow_payouts()
        machine.let_pass(DAYS_AT_BANK * DAY)
        machine.world.stripe.deliver(receive)  # of its way to the bank: to be read again
        machine.work_off()
        machine.bank_sends_back(0)
        sent_back = at_banks(machine.world.stripe, {"failed"})
        machine.world.stripe.deliver(receive, faults=WebhookFaults(drop=1))
        assert len(sent_back) == 1, "no payout was at a bank"
    finally:
        machine.teardown()


def run_sequences(number: int, steps: int) -> None:
    """Sequences of STEPS_EACH steps, at least `steps` in all; the number seeds them."""
    # The rule that a choice means depends on what was done before (`_chosen`), after which other choices are possible.
    # Hypothesis would call that flaky: so it neither changes sequences that it ran, nor remembers them.
    with (
        mock.patch.object(ConjectureRunner, "generate_mutations_from"),
        mock.patch.object(DataTree, "new_observer", lambda _: TreeRecordingObserver(DataTree())),
    ):
        run_state_machine_as_test(
            seed(number)(type(f"Sequences{number}", (WholeToTheEnd,), {})),
            settings=settings(
                max_examples=-(-steps // STEPS_EACH),
                stateful_step_count=STEPS_EACH + 1,  # with the people who come
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],  # to shrink a sequence takes longer than to read it
                suppress_health_check=list(HealthCheck),
            ),
            _min_steps=STEPS_EACH + 1,
        )


def missed() -> list[str]:
    """What a long run has to have done, and did not."""
    return [what for what in (*WANTED.split(), *OUTCOMES) if not taken[what]]


@pytest.mark.money_model
@pytest.mark.timeout(LONGEST_SECONDS)
def test_the_whole_of_billing_agrees_with_naive_books_stripe_and_the_chain(
    db: None, settings_: Any, silence: None
) -> None:
    taken.clear()
    try:
        with make_world(settings_) as world:
            Dying.world = world
            die_at_every_seam()
            die_as_a_poll_stores()
            a_bank_sends_back_and_no_webhook_comes()
            run_sequences(SEED, STEPS_WANTED)
            for more in range(1, MORE_ROUNDS_MAX + 1):
                if IS_LONG and missed():
                    run_sequences(SEED + 1000 * more, ROUND_STEPS)
    finally:
        print("\n".join(f"{count:6} {what}" for what, count in taken.most_common()))
    assert taken["steps"] >= STEPS_WANTED
    assert not (IS_LONG and missed()), f"it never came to these: {', '.join(missed())}"


@pytest.fixture
def silence() -> Iterator[None]:
    """Thousands of steps log megabytes, most of it what was made to go wrong."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def settings_(settings: Any) -> Any:
    """pytest's, under a name that Hypothesis's own leaves free."""
    return settings
