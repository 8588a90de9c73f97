"""install.sh before anything is installed: what it shows, what it refuses, and that it leaves the computer alone."""

from __future__ import annotations

import http.server
import json
import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pytest_django import Settings

from marketplace.foundation import signing
from marketplace.portal.install import manifests
from marketplace.portal.install.views import SCRIPT
from marketplace.portal.install.wheel import build_wheel
from tests.integration.portal.conftest import IS_ROOT, SYSTEM_PATH, Computer, make_computer

pytestmark = pytest.mark.django_db(transaction=True)
PROCESS = ("--executor", "process")
TOOLS = ["sh", "id", "date", "sed", "mktemp", "rm", "curl", "cat", "grep", "python3", "dirname", "tail"]
TOOLS += ["mkdir", "rmdir", "ln"]


def test_the_script_is_posix_shell_without_a_remark(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed (Debian: shellcheck)")
    plain = tmp_path / "install.sh"
    plain.write_text(SCRIPT.read_text().replace("=@", "=x@"))
    done = subprocess.run(
        ["shellcheck", "-s", "sh", "-e", "SC2015", plain], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""


def test_the_script_knows_this_marketplace(market: str, script: str) -> None:
    assert f"\nSERVER={market}\n" in script
    assert f"\nPUBLIC_KEY={signing.server_public_key_hex()}\n" in script
    assert f"curl -fsSL {market}/install.sh | sh -s -- --token T" in script
    assert "@" not in script.replace('"$@"', "").replace("$#", "")


def test_a_dry_run_shows_every_step_and_changes_nothing(script: str, computer: Computer, token: str) -> None:
    done = computer.run(script, "--token", token, "--dry-run", *PROCESS, "--price", "1.20", "--name", "it's; rm")
    assert done.returncode == 0, done.stdout + done.stderr
    for shown in ("PASS  system", "SHA-256 and signature are right", "-m venv", "pip install --require-hashes"):
        assert shown in done.stdout
    assert r"souk-agent enrol" in done.stdout
    assert "service start" in done.stdout
    assert token not in done.stdout
    assert computer.files() == []


@pytest.mark.skipif(not IS_ROOT, reason="root chooses whom the agent runs as")
@pytest.mark.parametrize(
    ("options", "is_made"), [(("--executor", "docker"), False), (PROCESS, True), (("--user", "souk-lesser"), True)]
)
def test_root_runs_containers_itself_and_processes_as_a_user_of_their_own(
    script: str, token: str, options: tuple[str, ...], is_made: bool
) -> None:
    computer = make_computer()
    try:
        where = ("--data", str(computer.root / "data"), "--prefix", str(computer.root / "prefix"))
        done = computer.run(script, "--token", token, "--dry-run", "--force", *where, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("useradd" in done.stdout) is (
            is_made and not is_here("souk-lesser" if "--user" in options else "souk-agent")
        )
        lesser = "the agent runs as souk-lesser, not as root\n         fix: run the install line with --user root"
        assert done.stdout.count(lesser) == (3 if "souk-lesser" in options else 0)
        assert ("PASS  disk limit: each lease gets a disk" in done.stdout) is not is_made
        assert computer.files() == []
    finally:
        shutil.rmtree(computer.root)


def test_what_was_asked_for_and_cannot_be_had_is_to_be_fixed(script: str, computer: Computer, token: str) -> None:
    asked = ("--egress", "public", "--fabric", "rack", "--fabric-address", "192.0.2.77")
    done = computer.run(script, "--token", token, "--force", "--dry-run", *asked)
    assert "FIX   fabric address: 192.0.2.77 is not one of this computer" in done.stdout
    assert "--egress 'public'" in done.stdout, "it reaches souk-agent enrol too"
    named = computer.run(script, "--token", token, "--force", "--dry-run", "--fabric-address", "gpu1.example")
    assert "FIX   fabric address: 'gpu1.example' is no IP address" in named.stdout


def test_half_a_download_does_nothing(script: str, computer: Computer, token: str) -> None:
    step = len(script) // 24
    cuts = [*range(200, len(script), step), *range(len(script) - 18, len(script) - 1)]
    for cut in cuts:
        done = computer.run(script[:cut], "--token", token, *PROCESS)
        assert done.returncode != 0 or not done.stdout, script[:cut][-60:]
        assert "==" not in done.stdout, f"it began, cut off after {script[:cut][-60:]!r}"
    assert computer.files() == []


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        ((), 2, "A token is needed: souk provider add-node prints the whole install command."),
        (("--token",), 2, "--token needs a value"),
        (("token",), 2, "What is 'token'?"),
        (("--token", "t", "--executor", "chroot"), 2, "--executor is docker or process"),
        (("--token", "t", "--data", "here"), 2, "write the whole path"),
        (("--token", "t", "--data", "/"), 2, "choose a folder of its own"),
        (("--token", "t", "--server-key", "ab"), 1, "not the one of --server-key"),
    ],
)
def test_a_mistake_is_a_sentence(
    script: str, computer: Computer, options: tuple[str, ...], status: int, sentence: str
) -> None:
    done = computer.run(script, *options)
    assert (done.returncode, sentence in done.stderr) == (status, True), done.stderr
    assert computer.files() == []


def test_what_needs_fixing_stops_it_and_says_what_to_do(script: str, computer: Computer, token: str) -> None:
    done = computer.run(script, "--token", token, DOCKER_HOST=f"unix://{computer.root}/none.sock")
    assert done.returncode == 8
    assert "FIX   engine: there is no Docker" in done.stdout
    assert "fix: apt install docker.io" in done.stdout
    assert "Nothing was changed" in done.stderr
    assert computer.files() == []


@pytest.mark.skipif(not IS_ROOT, reason="root chooses whom the agent runs as")
def test_roots_own_interpreter_is_refused_before_anything_is_installed(script: str, token: str, tmp_path: Path) -> None:
    computer = make_computer()
    try:
        tmp_path.chmod(0o700)
        (tmp_path / "python").symlink_to(sys.executable)
        where = ("--data", str(computer.root / "data"), "--prefix", str(computer.root / "prefix"))
        done = computer.run(script, "--token", token, *where, *PROCESS, "--runtime-python", str(tmp_path / "python"))
        assert done.returncode == 8, done.stdout + done.stderr
        assert "FIX   interpreter: the agent is to run as souk-agent, which may not enter /" in done.stdout
        assert "fix: leave --runtime-python out" in done.stdout
        assert computer.files() == []
    finally:
        shutil.rmtree(computer.root)


def test_a_node_of_another_marketplace_is_left_alone(script: str, computer: Computer, token: str) -> None:
    data = computer.root / "data"
    data.mkdir()
    (data / "config.json").write_text('{\n  "executor": "process",\n  "server_public_key": "%s"\n}\n' % ("ab" * 32))
    done = computer.run(script, "--token", token, "--data", str(data), *PROCESS)
    assert done.returncode == 1
    assert "holds a node of another marketplace" in done.stderr


def test_without_python_it_says_what_to_install(script: str, computer: Computer, token: str, tmp_path: Path) -> None:
    computer.path = tools_without(tmp_path, "python3")
    done = computer.run(script, "--token", token, *PROCESS, HTTPS_PROXY="http://127.0.0.1:9")
    assert done.returncode == 1
    assert "no Python 3.11 or newer" in done.stderr
    assert "apt install python3 python3-venv" in done.stderr
    assert computer.files() == []


def test_uv_that_cannot_bring_python_is_a_sentence(script: str, computer: Computer, token: str, tmp_path: Path) -> None:
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{SYSTEM_PATH}")
    assert uv is not None, "uv is one of the development tools"
    computer.path = tools_without(tmp_path, "python3")
    (Path(computer.path) / "uv").symlink_to(uv)
    no_way_out = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    done = computer.run(script, "--token", token, *PROCESS, NO_PROXY="", UV_OFFLINE="1", **no_way_out)
    assert done.returncode == 1
    assert "uv could not bring Python" in done.stderr
    assert "apt install python3 python3-venv" in done.stderr
    assert [name for name in computer.files() if (computer.root / name).is_file()] == []


def test_doctor_checks_a_computer_before_it_is_enrolled(market: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "provider_agent", "doctor", "--server", market, "--data", str(tmp_path / "none")]
    env = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, env=env, check=False)
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 8
    assert (found["engine"]["verdict"], found["clock"]["verdict"], found["bandwidth"]["verdict"]) == (
        "FIX",
        "PASS",
        "PASS",
    )
    process = subprocess.run([*command, "--executor", "process"], capture_output=True, text=True, env=env, check=False)
    assert process.returncode == 0, process.stdout
    assert "PASS  server (sync)" in process.stdout
    assert not (tmp_path / "none").exists()


def test_the_floors_in_the_signed_manifest_are_the_operators(market: str, settings: Settings) -> None:
    assert httpx.get(f"{market}/dist/manifest.json").json()["floors"]["nvidia-container-toolkit"] == "1.17.8"
    assert httpx.get(f"{market}/dist/manifest.json").json()["floors"] == settings.SOUK_NODE_FLOORS


def test_a_wheel_that_was_tampered_with_is_refused(script: str, computer: Computer, token: str, wheel: Path) -> None:
    with wheel.open("ab") as harmed:
        harmed.write(b"x")
    done = computer.run(script, "--token", token, *PROCESS)
    assert done.returncode == 1
    assert "REFUSED" in done.stderr
    assert "is not the file that this script names" in done.stderr
    assert computer.files() == []


@pytest.mark.parametrize("checker", ["OpenSSL", "Python"])
def test_a_manifest_that_was_tampered_with_is_refused(
    market: str, script: str, computer: Computer, token: str, tmp_path: Path, checker: str
) -> None:
    """Mallory, between the two, lowers a minimum version; the key is not hers."""
    if checker == "Python":
        computer.path = tools_without(tmp_path, "openssl")
    honest = computer.run(script, "--token", token, "--dry-run", *PROCESS)
    assert f"signature are right (checked with {checker})" in honest.stdout, honest.stderr
    for path, change in (
        ("/dist/manifest.json", lambda body: body.replace(b"1.17.8", b"1.00.0")),
        ("/dist/manifest.sig", lambda body: bytes([body[0] ^ 1]) + body[1:]),
        ("/dist/manifest.sig", lambda body: b""),
    ):
        with mallory(market, path, change) as address:
            done = computer.run(script.replace(market, address), "--token", token, *PROCESS)
        assert done.returncode == 1, path
        assert "did not sign this manifest" in done.stderr
    assert computer.files() == []


def test_an_old_manifest_with_a_good_signature_is_refused(
    market: str, script: str, computer: Computer, token: str, settings: Settings, tmp_path: Path
) -> None:
    older = build_wheel(tmp_path / "older")
    older = older.rename(older.with_name("gpusouk-0.0.9-py3-none-any.whl"))
    new = settings.SOUK_AGENT_WHEEL
    settings.SOUK_AGENT_WHEEL = str(older)
    old = manifests.current_release()
    settings.SOUK_AGENT_WHEEL = new
    replayed = {"/dist/manifest.json": old.manifest, "/dist/manifest.sig": old.signature}
    with mallory(market, "", lambda body: body, replayed) as address:
        done = computer.run(script.replace(market, address), "--token", token, *PROCESS)
    assert done.returncode == 1
    assert "names another wheel than this script" in done.stderr
    assert computer.files() == []


def test_only_the_published_wheel_is_handed_out(market: str) -> None:
    for name in ("manifest.jsonx", "souk.json", "gpusouk-9.9.9-py3-none-any.whl"):
        assert httpx.get(f"{market}/dist/{name}").status_code == 404


def test_a_marketplace_without_a_wheel_says_so(market: str, settings: Settings, tmp_path: Path) -> None:
    settings.SOUK_AGENT_WHEEL, settings.SOUK_DATA = "", tmp_path / "empty"
    answer = httpx.get(f"{market}/install.sh")
    assert (answer.status_code, answer.json()["code"]) == (503, "no_agent_wheel")


def test_the_same_code_makes_the_same_wheel(built_wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(tmp_path).read_bytes() == built_wheel.read_bytes()


def is_here(user: str) -> bool:
    """Whether this computer has the user already: an installed agent has made it."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def tools_without(folder: Path, absent: str) -> str:
    """A PATH with what the script needs, but for one."""
    bin_folder = folder / f"without-{absent}"
    bin_folder.mkdir()
    for tool in TOOLS:
        if tool != absent and (found := shutil.which(tool, path=SYSTEM_PATH)):
            (bin_folder / tool).symlink_to(found)
    return str(bin_folder)


class mallory:  # noqa: N801 - used as a function
    """A man in the middle who changes the body of one path, or answers some himself."""

    def __init__(
        self, market: str, path: str, change: Callable[[bytes], bytes], own: dict[str, bytes] | None = None
    ) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = httpx.get(market + self.path)
                body = (own or {}).get(self.path, answer.content)
                body = change(body) if self.path == path else body
                self.send_response(answer.status_code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_broken_newer_agent_is_never_replaced_by_an_older_one(script: str, computer: Computer, token: str) -> None:
    """The marketplace does not offer the newer one any more: a sentence, and nothing is changed."""
    prefix = computer.root / "prefix"
    release = prefix / "releases" / "0123456789ab"
    (release / "bin").mkdir(parents=True)
    (release / ".complete").write_text("9.9.9\n")
    (release / "bin" / "souk-agent").write_text("#!/bin/sh\nexit 1\n")
    (release / "bin" / "souk-agent").chmod(0o755)
    for name in ("current", "good"):
        (prefix / name).symlink_to(release)
    before = computer.files()
    options = ("--token", token, "--prefix", str(prefix), "--data", str(computer.root / "data"), *PROCESS, "--no-start")
    done = computer.run(script, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "REFUSED: version 9.9.9 is installed and does not run" in done.stderr
    assert "--allow-downgrade" in done.stderr
    assert computer.files() == before
