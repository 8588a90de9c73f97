"""Which escrow contract a marketplace named for a token: remembered, as SSH remembers a computer's key.

So the ways out need no marketplace, and one that suddenly names another contract is noticed before money goes there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from jobs.client.errors import UsageMistake
from jobs.client.settings import settings_path, write_private
from jobs.client.state_files import load_state
from jobs.wire import AssetView
from provider_agent.protocol.money.receipts import ADDRESS_PATTERN

CONTRACTS_MAX: Final = 1000


class KnownContract(BaseModel):
    """Where one token's escrow is, and what one token is."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    chain_id: int
    contract: str = Field(pattern=ADDRESS_PATTERN)
    token: str = Field(pattern=ADDRESS_PATTERN)
    scale: int

    @classmethod
    def of(cls, asset: AssetView) -> KnownContract | None:
        """What a marketplace says of a token; None where no contract holds it."""
        if asset.chain_id is None or not asset.contract.strip("0x"):
            return None
        return cls(chain_id=asset.chain_id, contract=asset.contract, token=asset.token, scale=asset.scale)

    def __str__(self) -> str:
        return f"{self.contract} on chain {self.chain_id} (token {self.token}, {self.scale} decimals)"

    def is_same(self, other: KnownContract) -> bool:
        """Whether both are one contract for one token."""
        return self._key == other._key

    @property
    def _key(self) -> tuple[int, str, str, int]:
        return self.chain_id, self.contract.lower(), self.token.lower(), self.scale


class _File(BaseModel):
    servers: dict[str, dict[str, KnownContract]] = Field(default_factory=dict)  # server -> asset -> contract


def known_contract(server: str, asset: str) -> KnownContract | None:
    """What was remembered; None where nothing was."""
    return load_state(_path(), _File).servers.get(server, {}).get(asset)


def remember_contract(server: str, asset: str, found: KnownContract) -> None:
    """Keep it; raises UsageMistake where another one was remembered."""
    file = load_state(_path(), _File)
    known = file.servers.setdefault(server, {})
    earlier = known.get(asset)
    if earlier is not None and not earlier.is_same(found):
        raise UsageMistake(
            f"{server} names the contract {found} for {asset}; until now it was {earlier}. Ask why, by another way."
            f" What lies in the one before is reached with --contract {earlier.contract}; to go on with the new one,"
            f" remove {asset} from {_path()}."
        )
    if earlier is None and sum(map(len, file.servers.values())) < CONTRACTS_MAX:
        known[asset] = found
        write_private(_path(), file.model_dump_json(indent=2))


def _path() -> Path:
    return settings_path().with_name("contracts.json")
