"""In what a lease is paid: dollars, which need no word, or a token, whose contract and parties the receipts name."""

from __future__ import annotations

from pydantic import Field

from provider_agent.protocol.bounds import Whole
from provider_agent.protocol.message import Message
from provider_agent.protocol.money.receipts import ADDRESS_PATTERN, ZERO_ADDRESS, ReceiptDomain


class ReceiptParties(Message):
    """What every receipt of one lease repeats: who is paid by whom in which token; zero where nobody is named."""

    provider: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    customer: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    asset: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)


class PaymentTerms(Message):
    """A lease's price in a token, frozen when it was placed. Amounts are base units of the token.

    `contract` is the escrow that holds it, and the EIP-712 domain of the lease's receipts; `provider` the payout wallet
    that the node's receipt key signs for, and zero where the provider is paid by the marketplace's own books.
    """

    asset: str = Field(pattern=r"^[A-Za-z0-9._-]{1,16}$")  # the code that people know it by
    token: str = Field(pattern=ADDRESS_PATTERN)
    chain_id: Whole = Field(gt=0, lt=2**63)
    contract: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    provider: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    customer: str = Field(default=ZERO_ADDRESS, pattern=ADDRESS_PATTERN)
    rate_per_hour: Whole = Field(gt=0, lt=2**256)  # of all devices of the lease
    cap: Whole = Field(ge=0, lt=2**256)  # the lease may never bill more

    @property
    def domain(self) -> ReceiptDomain:
        """Under which the lease's receipts are signed: they are worth nothing on another chain or contract."""
        return ReceiptDomain(chain_id=self.chain_id, verifying_contract=self.contract)

    @property
    def parties(self) -> ReceiptParties:
        """What the lease's receipts name."""
        return ReceiptParties(provider=self.provider, customer=self.customer, asset=self.token)
