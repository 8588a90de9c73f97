"""The demo's chapter on serving: what was trained answers behind the marketplace's address, to the client of anyone."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import openai

from examples.market import SOUK, Market, Party, run, run_json, wait_for
from examples.narration import Claims, say, show
from jobs.client.sdk import Souk
from jobs.wire import EndpointView

JOB_FILE = Path(__file__).parent / "serve-trained.yaml"
PLACEHOLDER = "00000000-0000-0000-0000-000000000000"
MODEL = "tiny-llama-chat"
PROMPT = "The "
TOKENS = 24
READY_SECONDS, ASK_SECONDS, USE_SECONDS, END_SECONDS = 240, 120, 30, 90


class ServingStory:
    """Alice serves her job, asks it, sees what was counted, and ends it."""

    def __init__(self, market: Market, claims: Claims) -> None:
        self.market, self.claims = market, claims

    def tell(self, alice: Party, job_id: UUID, expected: str) -> None:
        """`expected`: how the downloaded model itself goes on after the prompt, greedily."""
        endpoint = self.launch(alice, job_id)
        self.ask(alice, endpoint, expected)
        self.end(alice, endpoint)

    def launch(self, alice: Party, job_id: UUID) -> EndpointView:
        """`souk launch` waits until a replica has sent a real token and a gateway reaches it."""
        job_file = alice.home / JOB_FILE.name
        job_file.write_text(JOB_FILE.read_text().replace(PLACEHOLDER, str(job_id)))
        env = alice.env(self.market.server)
        say(f"   $ souk launch {JOB_FILE.name} --yes")
        for line in run([SOUK, "launch", str(job_file), "--yes"], env, seconds=READY_SECONDS).rstrip().splitlines():
            say("     " + line)
        with Souk(self.market.server, alice.key) as souk:
            found = next(each for each in souk.endpoints() if each.model == MODEL)
        self.claims.check(
            "the trained model is served by its job's id", found.state == "ready", f"{found.replicas_ready} replica"
        )
        return found

    def ask(self, alice: Party, endpoint: EndpointView, expected: str) -> None:
        """By the official client, unmodified: whole, streamed, and refused where the key is wrong."""
        key = run_json([SOUK, "keys", "create", "demo"], alice.env(self.market.server))["key"]
        client = openai.OpenAI(base_url=endpoint.base_url, api_key=key, timeout=ASK_SECONDS, max_retries=0)
        answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=TOKENS, temperature=0)
        said = answer.choices[0].text
        say(f"     | {PROMPT}{said!r}")
        self.claims.check(
            "the endpoint says what the downloaded model says", said.strip() == expected.strip(), repr(expected)
        )
        stream = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "What is a list?"}], max_tokens=TOKENS, stream=True
        )
        pieces = [
            chunk.choices[0].delta.content for chunk in stream if chunk.choices and chunk.choices[0].delta.content
        ]
        self.claims.check("it streams token by token", len(pieces) > 3, f"{len(pieces)} pieces")
        try:
            openai.OpenAI(base_url=endpoint.base_url, api_key="sk-souk-wrong", max_retries=0).models.list()
        except openai.AuthenticationError as error:
            self.claims.check("a wrong key opens nothing", error.status_code == 401, error.code)
        used = wait_for("the use to be in the books", lambda: self._used(alice), USE_SECONDS)
        self.claims.check("tokens were counted, by key", used > 0, f"{used} tokens written")

    def end(self, alice: Party, endpoint: EndpointView) -> None:
        """Cancelled like any job; the bill is of the seconds that the replica was there."""
        env = alice.env(self.market.server)
        run([SOUK, "cancel", str(endpoint.job_id), "--yes"], env)
        with Souk(self.market.server, alice.key) as souk:
            wait_for("the endpoint to end", lambda: souk.job(endpoint.job_id).state == "cancelled", END_SECONDS)
        show([SOUK, "bill", str(endpoint.job_id)], env)
        bill = run_json([SOUK, "bill", str(endpoint.job_id)], env)
        self.claims.check(
            "its seconds were billed, and the receipts verify",
            bill["verified"] is True and bill["bill"]["total_usd_micros"] > 0,
            f"{bill['bill']['total_usd_micros']} micro-USD",
        )

    def _used(self, alice: Party) -> int:
        usage = run_json([SOUK, "usage"], alice.env(self.market.server))
        return int(usage["total"]["output_tokens"])
