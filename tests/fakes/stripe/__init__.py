"""A stateful Stripe for tests, reached over real HTTP; see fake.py for what it does and how to steer it."""

from tests.fakes.stripe.controls import Effect as Effect
from tests.fakes.stripe.fake import FakeStripe as FakeStripe
from tests.fakes.stripe.fake import start_fake as start_fake
from tests.fakes.stripe.faults import Fault as Fault
from tests.fakes.stripe.faults import Faults as Faults
from tests.fakes.stripe.webhooks import Delivery as Delivery
from tests.fakes.stripe.webhooks import WebhookFaults as WebhookFaults
