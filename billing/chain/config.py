"""Which chains this marketplace is on: SOUK_CHAINS, read once and checked.

    [{"chain_id": 8453, "name": "Base", "rpc_urls": ["https://a...", "https://b..."],
      "finality": "finalized", "max_fee_gwei": "5"}]

Another chain is another entry; another token is a contract that `souk chain register` finds there. "finality" is
"finalized" (the chain's own tag) or "depth" (then "confirmations" blocks lie on top, 200 on a rollup without the tag).
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from django.conf import settings
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from billing.chain.errors import ChainMisconfigured, ChainUnknown

GWEI: Final = 10**9
ENDPOINTS_MIN: Final = 2  # in production: the answer of a single one is not trusted
ENDPOINTS_MAX: Final = 8


class ChainConfig(BaseModel):
    """One chain and how far it is believed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    chain_id: int = Field(gt=0, lt=2**63)
    name: str = Field(min_length=1, max_length=40)
    rpc_urls: tuple[str, ...] = Field(min_length=1, max_length=ENDPOINTS_MAX)
    finality: Literal["finalized", "depth"] = "finalized"
    confirmations: int = Field(default=0, ge=0, le=10_000)
    max_fee_gwei: str = Field(default="50", pattern=r"^[0-9]{1,6}(\.[0-9]{1,9})?$")
    coin: str = Field(default="ETH", pattern=r"^[A-Z0-9]{1,10}$")  # what gas is paid in
    coin_scale: int = Field(default=18, ge=0, le=36)
    timeout_seconds: float = Field(default=10, gt=0, le=60)
    stuck_seconds: int = Field(default=90, ge=1)  # after so long a transaction is sent again with higher fees
    blocks_per_query: int = Field(default=2_000, ge=1, le=10_000)
    is_development: bool = False

    @model_validator(mode="after")
    def _depth_says_how_deep(self) -> ChainConfig:
        if self.finality == "depth" and self.confirmations < 1 and not self.is_development:
            raise ValueError("finality by depth needs confirmations of 1 or more")
        if len(set(self.rpc_urls)) != len(self.rpc_urls):
            raise ValueError("an endpoint is there twice: it would agree with itself")
        if not self.is_development and len(self.rpc_urls) < ENDPOINTS_MIN:
            raise ValueError("two endpoints are needed: what one says alone is not believed")
        if self.is_development and not all(map(_is_loopback, self.rpc_urls)):
            raise ValueError("a development chain is on this computer: its keys are known to everybody")
        return self

    @property
    def max_fee(self) -> int:
        """The most that a unit of gas may cost, in the coin's base units."""
        whole, _, fraction = self.max_fee_gwei.partition(".")
        return int(whole) * GWEI + int(fraction.ljust(9, "0"))


def chains() -> Mapping[int, ChainConfig]:
    """Every configured chain by its id; raises ChainMisconfigured."""
    return _parse(repr(settings.SOUK_CHAINS))


def chain_of(chain_id: int) -> ChainConfig:
    """One chain; raises ChainUnknown."""
    try:
        return chains()[chain_id]
    except KeyError:
        raise ChainUnknown(chain_id=chain_id) from None


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@functools.lru_cache(maxsize=4)
def _parse(_: str) -> Mapping[int, ChainConfig]:
    given: list[dict[str, Any]] = settings.SOUK_CHAINS
    try:
        found = TypeAdapter(list[ChainConfig]).validate_python(given)
    except ValidationError as error:
        raise ChainMisconfigured(why=str(error)) from None
    if len({one.chain_id for one in found}) != len(found):
        raise ChainMisconfigured(why="two entries have one chain_id")
    return {one.chain_id: one for one in found}
