"""A challenge window that is open for a day, and a Stripe of one's own."""

from tests.integration.billing.disputes.conftest import open_window  # noqa: F401 - a fixture
from tests.integration.billing.fiat.conftest import stripe  # noqa: F401 - a fixture
