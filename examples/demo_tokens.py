"""The demo's chapter on tokens: every unit from the customer's wallet to the provider's, on a chain of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from billing.chain.devchain.chain import DEVELOPMENT_KEYS
from examples.market import SOUK, Market, Party, run, run_json, wait_for
from examples.narration import Claims, say, show, show_trail
from jobs.client.sdk import Souk
from jobs.client.wallet.chain_wallet import encode_call
from jobs.payment.terms import show_units
from jobs.wire import AssetView
from provider_agent.protocol import ethereum

JOB_FILE = Path(__file__).parent / "paid-in-tokens.yaml"
ASSET = "TUSD"
DEPOSIT = "3"
CHAIN_SECONDS, JOB_SECONDS, PAYOUT_SECONDS = 120, 240, 120
RICH_KEY = DEVELOPMENT_KEYS[1]  # of the development chain: everybody knows it, and its coins are worth nothing
BOBS_KEY = "0x" + "b0b0" * 16


class TokenStory:
    """Alice pays in, her job runs, whoever worked is paid out and claims; the parts add up to the last unit."""

    def __init__(self, market: Market, claims: Claims, providers: dict[str, Party]) -> None:
        self.market, self.claims, self.providers = market, claims, providers
        (chain,) = json.loads((Path(market.operator["data"]) / "chain" / "chains.json").read_text())
        self.rpc_url: str = chain["rpc_urls"][0]

    def tell(self, alice: Party) -> None:
        """All steps, in order."""
        token = self.pay_in(alice)
        job, worker = self.launch(alice)
        self.pay_out(worker, job, token)
        self.add_up(alice, worker, job, token)

    def pay_in(self, alice: Party) -> AssetView:
        """From a wallet into the escrow contract, by the command that any customer uses."""
        with Souk(self.market.server, alice.key) as souk:
            token = wait_for(
                "the chain's contracts",
                lambda: next((a for a in souk.assets() if a.code == ASSET), None),
                CHAIN_SECONDS,
            )
        key_file = self._key_file(alice, RICH_KEY)
        words = ["deposit", DEPOSIT, "--asset", ASSET, "--rpc-url", self.rpc_url, "--wallet-key-file", str(key_file)]
        show([SOUK, *words, "--yes"], alice.env(self.market.server))
        with Souk(self.market.server, alice.key) as souk:
            have = souk.balance().of(ASSET)
        self.claims.check(
            "what the escrow contract got is Alice's credit",
            have is not None and have.available == self._units(token, "balanceOf(address)", token.contract),
            self._show(token, have.available if have else 0),
        )
        return token

    def launch(self, alice: Party) -> tuple[dict[str, Any], Party]:
        """A job that names the token; its receipts are signed for this chain and this contract."""
        env = alice.env(self.market.server)
        say(f"   $ souk launch {JOB_FILE.name} --yes")
        run([SOUK, "launch", str(JOB_FILE), "--yes"], env, seconds=JOB_SECONDS)
        job = run_json([SOUK, "jobs"], env)[0]
        self.claims.check("the job completed", (job["name"], job["state"]) == ("paid-in-tokens", "completed"))
        file = alice.home / "bill.json"
        run([SOUK, "bill", job["job_id"], "--export", str(file)], env)
        nowhere = {**env, "SOUK_SERVER": "http://127.0.0.1:1", "SOUK_API_KEY": ""}
        verified = run_json([SOUK, "bill", "--verify", str(file)], nowhere)
        self.claims.check("the exported bill verifies without any server", verified["verified"] is True)
        job = run_json([SOUK, "show", job["job_id"]], env)
        return job, self.providers[job["attempts"][-1]["leases"][0]["node_name"]]

    def pay_out(self, worker: Party, job: dict[str, Any], token: AssetView) -> None:
        """To the provider's wallet: chosen by its signature, promised by a root, claimed by anybody."""
        env = worker.env(self.market.server)
        key_file = self._key_file(worker, BOBS_KEY)
        show([SOUK, "provider", "pay-to", "--asset", ASSET, "--wallet-key-file", str(key_file)], env)
        with Souk(self.market.server, worker.key) as souk:
            wait_for("the pay to be available", lambda: self._available(souk) or None, PAYOUT_SECONDS)
            show([SOUK, "provider", "pay-out", "--asset", ASSET], env)
            wait_for("the root to be open", lambda: souk.payouts(limit=1)[0].state == "confirmed", PAYOUT_SECONDS)
            (payout,) = souk.payouts(limit=1)
            sender = self._key_file(worker, RICH_KEY, name="sender")  # anybody who has coins for gas
            words = ["--rpc-url", self.rpc_url, "--wallet-key-file", str(sender)]
            show([SOUK, "provider", "claim", "--asset", ASSET, *words], env)
            wait_for("the claim to be booked", lambda: not souk.balance().of(ASSET).payout_clearing, PAYOUT_SECONDS)
        got = self._units(token, "balanceOf(address)", ethereum.address_of(BOBS_KEY))
        self.claims.check(
            "the provider's wallet has the payout, to the unit", got == payout.amount, self._show(token, got)
        )

    def add_up(self, alice: Party, worker: Party, job: dict[str, Any], token: AssetView) -> None:
        """Both trails, and that nothing was lost between them."""
        trails = {}
        for party in (alice, worker):
            with Souk(self.market.server, party.key) as souk:
                trails[party.name] = [each for each in souk.transfers() if each.asset == ASSET]
            show_trail(party.name, trails[party.name])
        lost = -sum(each.change for each in trails[alice.name] if each.code != "deposit")
        fee = -sum(each.change for each in trails[alice.name] if each.code == "platform_fee")
        earned = sum(each.change for each in trails[worker.name] if each.code == "provider_pay")
        self.claims.check(
            "what Alice spent is the provider's pay and the fee", lost == earned + fee, self._show(token, lost)
        )
        assets = httpx.get(f"{self.market.server}/api/v1/solvency", timeout=30).json()["assets"]
        shown = ", ".join(f"{each['asset']} {each['held']}" for each in assets)
        self.claims.check("anybody can see that what is owed is there", all(x["is_balanced"] for x in assets), shown)
        report = run_json(
            [SOUK, "ledger", "verify", "--data", self.market.operator["data"]], alice.env(self.market.server)
        )
        self.claims.check("the ledger verifies with both assets", report["is_true"], report["sums"])
        books = run_json(
            [SOUK, "ledger", "reconcile", "--data", self.market.operator["data"]], alice.env(self.market.server)
        )
        self.claims.check("ledger and chain agree", books["is_clean"], f"{len(books['differences'])} differences")

    def _available(self, souk: Souk) -> int:
        have = souk.balance().of(ASSET)
        return have.provider_available if have else 0

    def _units(self, token: AssetView, view: str, address: str) -> int:
        """What the chain itself has, read without the marketplace."""
        call = {"to": token.token, "data": "0x" + encode_call(view, [address]).hex()}
        body = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]}
        return int(httpx.post(self.rpc_url, json=body, timeout=30).json()["result"], 16)

    def _show(self, token: AssetView, units: int) -> str:
        return show_units(units, asset=token.code, scale=token.scale)

    def _key_file(self, party: Party, key: str, *, name: str = "wallet") -> Path:
        file = party.home / f"{name}.key"
        file.touch(mode=0o600)
        file.write_text(key)
        return file
