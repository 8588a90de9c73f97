"""The demo's chapter on a job paid straight from a wallet, which signs a hold for this job alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.demo_tokens import ASSET, RICH_KEY, TokenStory
from examples.market import SOUK, Party, run, run_json, wait_for
from examples.narration import say, show
from jobs.client.sdk import Souk
from jobs.spec import parse
from provider_agent.protocol import ethereum

JOB_FILE = Path(__file__).parent / "paid-from-wallet.yaml"
DEPOSIT = "3"
REGISTERED_SECONDS, JOB_SECONDS, CLOSED_SECONDS = 120, 240, 120
WALLET_KEYS = ("0x" + "b0b1" * 16, "0x" + "b0b2" * 16, "0x" + "b0b3" * 16)


class WalletStory:
    """Alice's wallet pays in and signs, her job runs, the contract pays whoever worked; the rest is hers again."""

    def __init__(self, tokens: TokenStory) -> None:
        self.tokens, self.market, self.claims = tokens, tokens.market, tokens.claims
        self.keys = dict(zip(tokens.providers, WALLET_KEYS, strict=True))
        self.on_chain = ["--asset", ASSET, "--rpc-url", tokens.rpc_url]

    def tell(self, alice: Party) -> None:
        """All steps, in order."""
        before = run_json([SOUK, "balance"], alice.env(self.market.server))
        self.name_wallets(alice)
        self.pay_in(alice)
        job = self.launch(alice)
        self.look_at_contract(alice, job)
        self.take_out(alice, job)
        after = run_json([SOUK, "balance"], alice.env(self.market.server))
        self.claims.check("her balance at the marketplace was not touched", before == after)

    def name_wallets(self, alice: Party) -> None:
        """Each provider's wallet lets its node's receipt key sign for it, registered with the contract."""
        for name, provider in self.tokens.providers.items():
            key_file = self.tokens._key_file(provider, self.keys[name], name="payout")
            show(
                [SOUK, "provider", "delegate", "--asset", ASSET, "--wallet-key-file", str(key_file)],
                provider.env(self.market.server),
            )
        spec = parse(JOB_FILE.read_text())
        with Souk(self.market.server, alice.key) as souk:

            def are_known() -> bool:
                """Of the nodes that are there none is left out for its wallet; one was killed in chapter 4."""
                plan = souk.quote(spec).plan
                return bool(plan.candidates) and all(each.code != "wallet" for each in plan.exclusions)

            wait_for("the contract to know all wallets", lambda: are_known() or None, REGISTERED_SECONDS)

    def pay_in(self, alice: Party) -> None:
        """Into the wallet's own balance in the contract."""
        show(
            [SOUK, "escrow", "deposit", DEPOSIT, *self.on_chain, *self._signed_by(alice), "--yes"],
            alice.env(self.market.server),
        )

    def launch(self, alice: Party) -> dict[str, Any]:
        """The wallet signs; the hold is final before a node is rented."""
        command = [SOUK, "launch", str(JOB_FILE), "--yes", *self._signed_by(alice)]
        say(f"   $ souk launch {JOB_FILE.name} --yes --wallet-key-file wallet.key --rpc-url {self.tokens.rpc_url}")
        env = alice.env(self.market.server)
        run([*command, "--rpc-url", self.tokens.rpc_url], env, seconds=JOB_SECONDS)
        job: dict[str, Any] = run_json([SOUK, "jobs"], env)[0]
        self.claims.check("the job completed", (job["name"], job["state"]) == ("paid-from-wallet", "completed"))
        return job

    def look_at_contract(self, alice: Party, job: dict[str, Any]) -> None:
        """What the contract itself has, read without the marketplace: hold closed, each unit accounted for."""
        nowhere = {**alice.env(self.market.server), "SOUK_SERVER": "http://127.0.0.1:1", "SOUK_API_KEY": ""}
        where = ["--contract", self._contract(alice), "--rpc-url", self.tokens.rpc_url]
        look = [SOUK, "escrow", "show", job["job_id"], *where]

        def paid() -> dict[str, Any] | None:
            seen: dict[str, Any] = run_json(look, nowhere)
            waits = any(int(lease["pending"]) for lease in seen["leases"])
            return seen if seen["leases"] and seen["hold"]["is_closed"] and not waits else None

        seen = wait_for("the contract to have paid and closed the hold", paid, CLOSED_SECONDS)
        show(look, nowhere)
        settled = sum(int(lease["settled"]) for lease in seen["leases"])
        bill = run_json([SOUK, "bill", job["job_id"]], alice.env(self.market.server))["bill"]
        charged = sum(int(line["charge_units"]) for line in bill["lines"])
        self.claims.check("the contract settled what the bill charges, to the unit", settled == charged, settled)

    def take_out(self, alice: Party, job: dict[str, Any]) -> None:
        """Whoever worked takes its pay out with its own wallet, and Alice what is left."""
        nowhere = {**alice.env(self.market.server), "SOUK_SERVER": "http://127.0.0.1:1", "SOUK_API_KEY": ""}
        where = ["--contract", self._contract(alice), "--rpc-url", self.tokens.rpc_url]
        full = run_json([SOUK, "show", job["job_id"]], alice.env(self.market.server))
        node = full["attempts"][-1]["leases"][0]["node_name"]
        earned = run_json(
            [SOUK, "escrow", "balance", "--wallet", ethereum.address_of(self.keys[node]), *where], nowhere
        )
        self.claims.check("the node's wallet has its pay in the contract", int(earned["available"]) > 0)
        command = [SOUK, "escrow", "withdraw", "all", *where, *self._signed_by(alice), "--yes"]
        show(command, nowhere)
        left = run_json([SOUK, "escrow", "balance", "--wallet", ethereum.address_of(RICH_KEY), *where], nowhere)
        self.claims.check(
            "nothing of Alice's is left in the contract, and no server was asked",
            (left["available"], left["held"]) == ("0", "0"),
        )

    def _contract(self, alice: Party) -> str:
        with Souk(self.market.server, alice.key) as souk:
            return next(asset.contract for asset in souk.assets() if asset.code == ASSET)

    def _signed_by(self, party: Party) -> list[str]:
        return ["--wallet-key-file", str(self.tokens._key_file(party, RICH_KEY))]
