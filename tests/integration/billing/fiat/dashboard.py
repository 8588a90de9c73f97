"""What an operator does in Stripe's dashboard, past us."""

from __future__ import annotations

from tests.fakes.stripe import FakeStripe


def refund_in_dashboard(stripe: FakeStripe, charge_id: str, cents: int) -> str:
    answer = stripe.handle("POST", "/v1/refunds", f"charge={charge_id}&amount={cents}", key=stripe.secret_key)
    assert answer.status == 200, answer.body
    return str(answer.body["id"]) if isinstance(answer.body, dict) else str(stripe.store.all("refund")[-1]["id"])
