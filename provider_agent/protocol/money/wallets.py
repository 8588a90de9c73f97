"""What a payout wallet signs in words (EIP-191), so that nobody else can have a provider's money sent there."""

from __future__ import annotations

from uuid import UUID

from provider_agent.protocol import ethereum


def payout_wallet_text(organisation_id: UUID, asset: str, destination: str, *, change: int) -> str:
    """The text; it names the change's number, so that an old signature changes nothing again."""
    return (
        f"Souk: pay the {asset} of organisation {organisation_id} to {destination}.\n"
        f"This is change {change} of its payout settings."
    )


def sign_payout_wallet(private_key_hex: str, text: str) -> str:
    """The wallet's signature of the text, 0x-hex."""
    return ethereum.sign_message(private_key_hex, text.encode())
