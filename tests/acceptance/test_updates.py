"""Agents from the install command update themselves: kept where it went well, rolled back where not.

Everything is real: the marketplace, two nodes that share an installation, wheels of other versions, a job that runs.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from examples.market import PATIENCE, Market, NodeOptions, run, wait_for
from jobs.client.sdk import Souk
from provider_agent.config import DataFolder
from provider_agent.packaging.prefix import Prefix, version_of
from provider_agent.packaging.service import is_running
from provider_agent.protocol import RELEASE_PREFIX
from provider_agent.updating.update_request import clear_update_request, write_update_request
from tests.acceptance.conftest import forget_servers_of_pytest
from tests.acceptance.customer import WITHOUT_CHECKS_AND_CHAIN, launch
from tests.wheels import rebuild_wheel

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
CHECK_IN_SECONDS = "20"  # two agents start anew within it, on a machine that does other things too
SLOW_SECONDS = 120  # on a machine that does other things too
ROOT = Path(__file__).parents[2]
CRASHES = {"provider_agent/daemon.py": ("import asyncio\n", "import asyncio\nraise RuntimeError('a bad release')\n")}
CANNOT_SYNC = {"provider_agent/client.py": ('API = "/api/agent/v1"', 'API = "/api/agent/v0"')}
SLEEPS = ["python3", "-c", "import time\nfor n in range(3000): print(n, flush=True); time.sleep(0.2)"]

Lie = dict[str, Callable[[bytes], bytes]]


class Fleet:
    """Bob's two nodes of one installation, each kept by its service, and the operator's hand."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.prefix = Prefix(market.prefix)
        self.names = ("bob-1", "bob-2")
        (up,) = [p for p in psutil.process_iter() if p.pid == market.processes.pid_of("souk up")]
        web = next(p for p in up.children(recursive=True) if "DATABASE_URL" in p.environ())
        self.operator_env = web.environ()
        self.servers = [p for p in up.children(recursive=True) if any("python" in word for word in _words(p)[:1])]
        installed = next((self.prefix.root / "current").glob("gpusouk-*.whl"))  # an update takes it away
        self.first_wheel = Path(shutil.copy(installed, market.folder))

    def data(self, name: str) -> DataFolder:
        return DataFolder(self.market.agent_folder(name))

    def serve(self, verb: str = "start") -> None:
        """Start (or stop) both services, with their keeper."""
        for name in self.names:
            program = [str(self.prefix.program), "service", verb]
            words = ["--program", str(self.prefix.program), "--user", getpass.getuser()] if verb == "start" else []
            env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            env |= {"SOUK_UPDATE_SECONDS": CHECK_IN_SECONDS}
            run([*program, *words, "--data", str(self.data(name).root)], env)

    def stop_keepers(self) -> None:
        for path in self.prefix.root.glob("keeper-*.pid"):
            with contextlib.suppress(psutil.NoSuchProcess):
                keeper = psutil.Process(int(path.read_text()))
                keeper.terminate()
                psutil.wait_procs([keeper], 5)

    def manage(self, *words: str) -> Any:
        printed = run([sys.executable, str(ROOT / "manage.py"), *words, "--json"], self.operator_env)
        return json.loads(printed[printed.index("{") :])

    def publish(self, version: str, changes: dict[str, tuple[str, str]] | None = None) -> Path:
        made = rebuild_wheel(self.first_wheel, self.market.folder / "built", version, changes)
        self.manage("publish_agent", "--wheel", str(made), "--share", "0.05")
        return made

    def version(self, name: str) -> str:
        """What the agent that runs says of itself."""
        found = json.loads(run([str(self.prefix.program), "status", "--json", "--data", str(self.data(name).root)], {}))
        return str(found["version"])

    def pid(self, name: str) -> int:
        return int((self.data(name).root / "agent.pid").read_text())

    def want(self, version: str) -> None:
        write_update_request(self.data("bob-1"), version, now=True)

    def begin(self, seconds: str = CHECK_IN_SECONDS, **env: str) -> subprocess.Popen[str]:
        """One try of the updater, as the keeper starts it."""
        python = str(self.prefix.root / "good" / "bin" / "python")
        command = [python, "-I", "-m", "provider_agent.updating", "once", "--prefix", str(self.prefix.root)]
        command += ["--seconds", seconds]
        everything = {**os.environ, **env}
        return subprocess.Popen(command, env=everything, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def once(self, **env: str) -> tuple[int, str]:
        process = self.begin(**env)
        out, err = process.communicate(timeout=120 * PATIENCE)
        return process.returncode, out + err

    def links(self) -> tuple[str, str]:
        """Versions of what runs and of what is proven; both are whole."""
        found = [self.prefix.release("current"), self.prefix.release("good")]
        assert None not in found, "a link names nothing whole"
        return version_of(found[0] or Path()), version_of(found[1] or Path())


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    env = {"SOUK_ROLLOUT_SOAK_SECONDS": "0", "SOUK_ROLLOUT_CHECKED_IN_MIN": "1", "SOUK_ROLLOUT_ROLLBACKS_MAX": "2"}
    env |= WITHOUT_CHECKS_AND_CHAIN
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="souk-updates-", dir="/tmp") as folder,
    ):
        forget_servers_of_pytest(patch)
        with Market(Path(folder), env=env) as market:
            bob = market.enrol("bob-1", price="0.30", node=NodeOptions(devices=1, cores="0"))
            market.enrol("bob-2", price="0.90", provider=bob, node=NodeOptions(devices=1, cores="1"))
            made = Fleet(market)
            try:
                made.serve()
                with Souk(market.server, bob.key) as souk:
                    wait_for("both to be listed", lambda: len(souk.offers()) == 2 or None, SLOW_SECONDS)
                yield made
                print((made.prefix.root / "updater.log").read_text()[-6000:])
            finally:
                with contextlib.suppress(Exception):
                    made.serve("stop")


@pytest.fixture
def by_hand(fleet: Fleet) -> Iterator[Fleet]:
    """Without keepers: the test starts the updater itself."""
    fleet.stop_keepers()
    yield fleet
    clear_update_request(fleet.data("bob-1"))


def test_what_was_not_signed_for_this_node_is_refused_and_changes_nothing(by_hand: Fleet) -> None:
    fleet = by_hand
    fleet.publish("0.2.0")
    before, pids = fleet.links(), [fleet.pid(name) for name in fleet.names]
    good = fleet.prefix.release("good")
    manifest = httpx.get(f"{fleet.market.server}/dist/releases/0.2.0/manifest.json").content
    at = "/dist/releases/0.2.0/manifest"
    key = Ed25519PrivateKey.from_private_bytes(_key_bytes(fleet.operator_env["SOUK_SIGNING_KEY"]))
    foreign = Ed25519PrivateKey.generate()

    def signed(version: str, data: bytes) -> Lie:
        place = f"/dist/releases/{version}/manifest"
        return {f"{place}.json": lambda _: data, f"{place}.sig": lambda _: key.sign(RELEASE_PREFIX + data)}

    wheel = "/dist/gpusouk-0.2.0-py3-none-any.whl"
    lies: list[tuple[str, str, Lie, str]] = [
        ("a floor lowered", "0.2.0", {f"{at}.json": lambda b: b.replace(b"20.10", b"19.10")}, "not signed by"),
        ("Mallory's key", "0.2.0", {f"{at}.sig": lambda _: foreign.sign(RELEASE_PREFIX + manifest)}, "not signed by"),
        ("another wheel", "0.2.0", {wheel: lambda b: b[:-1] + b"x"}, "not the file"),
        ("a longer wheel", "0.2.0", {wheel: lambda b: b + b"x"}, "is longer than"),
        ("half a wheel", "0.2.0", {wheel: lambda b: b[: len(b) // 2]}, "broke off"),
        ("another version's", "0.9.0", signed("0.9.0", manifest), "is of 0.2.0"),
        ("an older one, really signed", "0.0.9", signed("0.0.9", _with(manifest, version="0.0.9")), "not newer"),
        ("another marketplace's", "0.2.0", signed("0.2.0", _with(manifest, server="http://m:1")), "installed from"),
    ]
    for what, version, changes, sentence in lies:
        fleet.want(version)
        with mallory(changes) as proxy:
            code, output = fleet.once(HTTP_PROXY=proxy, NO_PROXY="", no_proxy="")
        assert (code in {1, 10}, sentence in output) == (True, True), f"{what}: {code} {output}"
        assert fleet.links() == before, what
        assert [path for path in fleet.prefix.releases.iterdir() if path != good] == [], what
        assert not list(fleet.prefix.root.glob(".fetch-*")), what
    assert [fleet.pid(name) for name in fleet.names] == pids, "no agent was restarted"


@pytest.mark.skipif(os.geteuid() != 0, reason="a full disk is a small mount, which needs root")
def test_a_full_disk_changes_nothing(by_hand: Fleet) -> None:
    fleet = by_hand
    before = fleet.links()
    digest = hashlib.sha256((fleet.market.folder / "built" / "gpusouk-0.2.0-py3-none-any.whl").read_bytes()).hexdigest()
    release = fleet.prefix.releases / digest[:12]
    release.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "souk-updates", str(release)], check=True)
    try:
        fleet.want("0.2.0")
        code, output = fleet.once()
        assert code == 1
        assert "No space left" in output
        assert fleet.links() == before
    finally:
        subprocess.run(["umount", str(release)], check=True)


def test_an_updater_killed_at_each_step_is_repaired_by_the_next(by_hand: Fleet) -> None:
    fleet, old = by_hand, by_hand.prefix.release("good")
    assert old is not None
    fleet.want("0.2.0")
    record = fleet.prefix.record_path

    def others() -> list[Path]:
        return [path for path in fleet.prefix.releases.iterdir() if path != old]

    steps: list[tuple[str, Callable[[], bool]]] = [
        ("fetching", lambda: bool(list(fleet.prefix.root.glob(".fetch-*")))),
        ("an environment begun", lambda: bool(others())),
        ("packages copied", lambda: any((path / "requirements.lock").exists() for path in others())),
        ("whole", lambda: any((path / ".complete").exists() for path in others())),
        ("trial noted", lambda: record.exists() and '"version"' in record.read_text()),
        ("switched", lambda: fleet.prefix.release("current") != old),
    ]
    for what, reached in steps:
        updater = fleet.begin()
        while not reached() and updater.poll() is None:
            time.sleep(0.002)
        assert updater.poll() is None, f"it ended before it was killed ({what}): {updater.communicate()}"
        updater.kill()
        updater.communicate()
        assert fleet.links()[1] == version_of(old), what
        current = fleet.prefix.root / "current" / "bin" / "souk-agent"
        assert run([str(current), "--version"], {}).strip() in {"0.2.0", version_of(old)}, what
    code, output = fleet.once()
    assert (code, "updated" in output) == (0, True), output
    assert fleet.links() == ("0.2.0", "0.2.0")
    assert [fleet.version(name) for name in fleet.names] == ["0.2.0", "0.2.0"]
    assert len(list(fleet.prefix.releases.iterdir())) == 1


def test_a_silent_marketplace_is_no_reason_to_go_back(by_hand: Fleet) -> None:
    """Its processes are stopped while the new release waits for an answer: longer than it would be given."""
    fleet, before = by_hand, by_hand.links()[1]
    fleet.publish("0.2.1")
    fleet.want("0.2.1")
    updater = fleet.begin(seconds="8")
    wait_for("the switch", lambda: fleet.links()[0] == "0.2.1" or None, 60)
    for server in fleet.servers:
        server.suspend()
    try:
        time.sleep(20)
        assert updater.poll() is None, updater.communicate()
        assert fleet.links() == ("0.2.1", before)
    finally:
        for server in fleet.servers:
            server.resume()
    out, err = updater.communicate(timeout=60 * PATIENCE)
    assert "updated" in out, err
    assert fleet.links() == ("0.2.1", "0.2.1")


def test_a_rollout_reaches_the_nodes_and_a_job_goes_on_through_it(fleet: Fleet) -> None:
    fleet.serve()  # with keepers
    alice = fleet.market.sign_up("alice")
    fleet.market.deposit(alice, "5.00")
    with Souk(fleet.market.server, alice.key) as souk:
        spec = {
            "kind": "train",
            "name": "long",
            "resources": {"gpus": 1, "kind": "any", "isolation": "none"},
            "work": {"steps": 1},
        }
        spec |= {"budget": {"max_total": "1.00"}, "command": SLEEPS}
        job = launch(souk, spec)
        wait_for("the job to run", lambda: souk.job(job.job_id).state == "running" or None, 60)
        program = _program(fleet, "range(3000)")
        fleet.publish("0.3.0")
        fleet.manage("rollout", "set", "--share", "1")
        wait_for(
            "both to have it", lambda: [fleet.version(n) for n in fleet.names] == ["0.3.0"] * 2 or None, SLOW_SECONDS
        )
        wait_for("the rollout to end", lambda: fleet.manage("rollout", "status")["state"] == "complete" or None, 40)
        view = souk.job(job.job_id)
        assert (view.state, len(view.attempts)) == ("running", 1), "the same attempt"
        assert program.is_running(), "the same program"
        souk.cancel(job.job_id)
    script = httpx.get(f"{fleet.market.server}/install.sh").text
    assert "\nVERSION=0.3.0\n" in script, "new nodes get what has gone all the way"


def test_an_agent_that_crashed_comes_back_by_itself(fleet: Fleet) -> None:
    before = fleet.pid("bob-2")
    psutil.Process(before).kill()
    data = fleet.data("bob-2")
    wait_for("it to be back", lambda: (is_running(data) and fleet.pid("bob-2") != before) or None, SLOW_SECONDS)
    wait_for("its first beat", lambda: fleet.version("bob-2") or None, SLOW_SECONDS)


@pytest.mark.parametrize(
    ("version", "changes", "why"),
    [
        pytest.param("0.4.0", CRASHES, "did not start", id="it crashes at its start", marks=pytest.mark.soak),
        pytest.param(
            "0.5.0",
            CANNOT_SYNC,
            f"did not check in within {CHECK_IN_SECONDS} s",
            id="it runs and cannot sync",
        ),
    ],
)
def test_a_bad_release_is_rolled_back_and_its_rollout_halts(
    fleet: Fleet, version: str, changes: dict[str, tuple[str, str]], why: str
) -> None:
    good = fleet.links()[1]
    fleet.publish(version, changes)
    fleet.manage("rollout", "set", "--share", "1")
    wait_for("the rollback", lambda: version in fleet.prefix.record().bad or None, SLOW_SECONDS)
    wait_for("the old agents", lambda: [fleet.version(n) for n in fleet.names] == [good] * 2 or None, SLOW_SECONDS)
    assert fleet.links() == (good, good)
    assert why in fleet.prefix.record().bad[version]["reason"]

    def halted() -> Any:
        found = fleet.manage("rollout", "status")
        return found if found["state"] == "halted" else None

    found = wait_for("the rollout to halt by itself", halted, SLOW_SECONDS)
    assert {one["node"] for one in found["rollbacks"]} == set(fleet.names)
    assert why in found["rollbacks"][0]["reason"]
    assert found["installable"] != version
    output = run([str(fleet.prefix.program), "status", "--data", str(fleet.data("bob-1").root)], {})
    assert f"last rollback: {version}" in output
    doctor = [str(fleet.prefix.program), "doctor", "--data", str(fleet.data("bob-1").root)]
    assert f"{version} was rolled back" in subprocess.run(doctor, capture_output=True, text=True, check=False).stdout


def test_the_operator_goes_back_and_the_provider_may_hold(fleet: Fleet) -> None:
    base = fleet.links()[1]
    fleet.publish("0.6.0")
    hold = [str(fleet.prefix.program), "update", "--json", "--data", str(fleet.data("bob-1").root)]
    assert json.loads(run([*hold, "--check"], {}))["version"] == base
    fleet.manage("rollout", "set", "--share", "1")
    wait_for("both to have it", lambda: [fleet.version(n) for n in fleet.names] == ["0.6.0"] * 2 or None, SLOW_SECONDS)
    wait_for("it to be proven", lambda: fleet.links() == ("0.6.0", "0.6.0") or None, SLOW_SECONDS)
    fleet.manage("rollout", "back", "--to", base)
    wait_for("both to be back", lambda: [fleet.version(n) for n in fleet.names] == [base] * 2 or None, SLOW_SECONDS)
    wait_for("it to be proven", lambda: fleet.links() == (base, base) or None, SLOW_SECONDS)
    assert json.loads(run([*hold, "--hold"], {}))["updates"]["mode"] == "manual"
    assert json.loads((fleet.data("bob-1").root / "config.json").read_text())["updates"] == "manual"


# --- below


@contextlib.contextmanager
def mallory(changes: dict[str, Callable[[bytes], bytes]]) -> Iterator[str]:
    """A man in the middle: an HTTP proxy that changes the bodies of some paths; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = httpx.get(self.path, trust_env=False)
            change = changes.get(urlsplit(self.path).path)
            body = change(answer.content) if change else answer.content
            self.send_response(200 if change else answer.status_code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _with(manifest: bytes, **changes: str) -> bytes:
    return json.dumps({**json.loads(manifest), **changes}).encode()


def _key_bytes(text: str) -> bytes:
    return bytes.fromhex(text) if len(text) == 64 else base64.b64decode(text)


def _words(process: psutil.Process) -> list[str]:
    return [Path(word).name for word in process.cmdline()]


def _program(fleet: Fleet, mark: str) -> psutil.Process:
    def look() -> psutil.Process | None:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(mark in word for word in process.cmdline()) and process.name().startswith("python"):
                    return process
        return None

    return wait_for("the job's program", look, 30)
