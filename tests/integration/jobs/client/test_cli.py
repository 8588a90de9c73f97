"""The command itself: help, signing in, JSON, exit statuses, what it imports."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import typer

from jobs.client import cli, job_states, settings
from jobs.client.errors import UsageMistake
from jobs.client.exit_codes import ExitCode
from jobs.states import JOB_ENDS, JobState
from tests.unit.jobs.client.conftest import Run
from tests.unit.jobs.client.fake_answers import a_job, an_attempt
from tests.unit.jobs.client.fake_server import KEY, FakeMarketplace

ROOT = Path(__file__).parents[4]
COMMANDS = ["plan", "launch", "jobs", "show", "logs", "cancel", "resume", "artifacts", "download", "bill"]
COMMANDS += ["signup", "login", "logout", "balance", "offers", "provider add-node", "provider nodes", "provider links"]
COMMANDS += ["storage", "metrics", "topups", *(f"refunds {verb}" for verb in ("list", "create"))]
COMMANDS += [f"members {verb}" for verb in ("list", "role", "remove")]
COMMANDS += [f"invitations {verb}" for verb in ("list", "create", "revoke", "accept")]
COMMANDS += [f"limits {verb}" for verb in ("list", "set", "remove")]
COMMANDS += [f"auto-topup {verb}" for verb in ("show", "set", "off")]
COMMANDS += [f"invoices {verb}" for verb in ("list", "show", "save")]
COMMANDS += [f"disputes {verb}" for verb in ("list", "show", "open", "answer", "withdraw")]
HEAVY = ["django", "torch", "docker", "redis", "celery", "numpy", "eth_account", "httpx", "pydantic", "yaml"]


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys, jobs.client.cli; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_all_of_the_client_needs_the_base_packages_alone() -> None:
    server = ["django", "rest_framework", "torch", "docker", "redis", "celery", "psycopg", "psutil", "numpy", "web3"]
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({server}))\n"  # None: importing it raises ImportError
        "import pkgutil, importlib, jobs.client, jobs.spec\n"
        "for package in (jobs.client, jobs.spec):\n"
        "    for module in pkgutil.iter_modules(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(module.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(run: Run, command: str) -> None:
    ended = run(*command.split(), "--help")
    assert ended.status == 0
    assert "Example" in ended.out
    assert "--json" in ended.out
    assert "--server" in ended.out


def test_documented_exit_statuses_are_the_codes() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", text, flags=re.MULTILINE)
    assert {int(number): name for number, name in rows} == {code.value: code.name for code in ExitCode}


def test_documented_commands_are_the_commands() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [name for name in COMMANDS if f"`souk {name}" not in text] == []


def test_job_states_are_the_servers() -> None:
    assert set(job_states.ENDS) == {state.value for state in JOB_ENDS}
    assert set(job_states.STYLES) == set(JobState.values)


def test_login_keeps_the_key_for_the_owner_alone_and_prints_it_nowhere(
    run: Run, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOUK_API_KEY")
    monkeypatch.setattr("sys.stdin", _Stdin("correct horse\n"))
    ended = run("login", "--email", "alice@example.org", "--password-stdin")
    assert ended.status == 0, ended.err
    path = settings.settings_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert KEY in path.read_text()
    assert KEY not in ended.out + ended.err
    assert run("balance", "--json").json["available_usd_micros"] == 5
    assert run("logout").status == 0
    assert KEY not in path.read_text()
    assert run("balance").status == 4


def test_signup_makes_an_account_and_signs_in(
    run: Run, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOUK_API_KEY")
    monkeypatch.setattr("sys.stdin", _Stdin("correct horse\n"))
    assert run("signup", "--email", "alice@example.org", "--password-stdin", "--invitation", "i").status == 0
    assert market.asked[0].json == {"email": "alice@example.org", "password": "correct horse", "invitation": "i"}
    assert run("balance").status == 0


@pytest.mark.parametrize(("command", "is_repeated"), [("signup", True), ("login", False)])
def test_a_new_password_alone_is_asked_for_twice(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, is_repeated: bool
) -> None:
    asked: list[bool] = []

    def prompt(text: str, *, hide_input: bool, confirmation_prompt: bool) -> str:
        asked.append(confirmation_prompt)
        return "correct horse"

    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr("sys.stdin", _Terminal(""))
    assert run(command, "--email", "alice@example.org").status == 0
    assert asked == [is_repeated]


def test_signup_says_what_is_next_where_addresses_are_verified(
    run: Run, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.signup_answer = {"message": "Open the link in the mail."}
    monkeypatch.setattr("sys.stdin", _Stdin("correct horse\n"))
    ended = run("signup", "--email", "alice@example.org", "--password-stdin")
    assert ended.status == 0, ended.err
    said = " ".join(ended.out.split())
    assert "Open the link in the mail." in said and "souk login --server" in said
    assert market.routes("POST") == ["/api/v1/signup"]
    assert not settings.settings_path().exists()


def test_login_gives_the_code_of_a_second_factor(
    run: Run, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    market.code = "123456"
    monkeypatch.setattr("sys.stdin", _Stdin("correct horse\n"))
    asked = ["login", "--email", "alice@example.org", "--password-stdin"]
    ended = run(*asked)  # nobody is there to be asked for it
    assert (ended.status, "code of your second factor" in " ".join(ended.err.split())) == (2, True)
    assert run(*asked, "--code", "000000").status == 6
    assert run(*asked, "--code", "123456").status == 0


def test_wrong_password_is_refused_and_nothing_is_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", _Stdin("wrong\n"))
    ended = run("login", "--email", "alice@example.org", "--password-stdin")
    assert (ended.status, "E-mail or password is wrong" in ended.err) == (6, True)
    assert not settings.settings_path().exists()


def test_key_of_one_server_is_not_sent_to_another(
    run: Run, market: FakeMarketplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SOUK_API_KEY")
    monkeypatch.setattr("sys.stdin", _Stdin(f"{KEY}\n"))
    assert run("login", "--key-stdin").status == 0
    with FakeMarketplace() as mallory:
        assert run("balance", "--server", mallory.url).status == 4
        assert mallory.asked == []


def test_damaged_settings_are_reported(run: Run) -> None:
    path = settings.settings_path()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    ended = run("balance")
    assert (ended.status, "is damaged" in ended.err) == (2, True)


@pytest.mark.parametrize("address", ["ftp://x", "https://", "https://u:p@x", "https://x?y"])
def test_address_that_is_none_is_a_usage_mistake(address: str) -> None:
    with pytest.raises(UsageMistake):
        settings.normalise(address)


def test_address_without_scheme_is_encrypted() -> None:
    assert settings.normalise("souk.example/") == "https://souk.example"


def test_errors_are_json_too_and_alone_on_stdout(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("show", "nothing", "--json").json["error"]["code"] == "usage"
    assert run("show", "--json").json["error"]["code"] == "usage"
    monkeypatch.delenv("SOUK_API_KEY")
    ended = run("jobs", "--json")
    assert (ended.status, ended.json["error"]["code"]) == (4, "not_signed_in")


def test_unknown_command_or_option_is_a_usage_mistake(run: Run) -> None:
    assert run("lunch").status == 2
    assert run("jobs", "--al").status == 2


def test_job_is_found_by_id_its_beginning_or_its_name(run: Run, market: FakeMarketplace) -> None:
    market.others = [a_job(name="other"), a_job(name="twice"), a_job(name="twice")]
    for text in (str(market.job_id), str(market.job_id)[:13], "tiny"):
        assert run("show", text, "--json").json["job_id"] == str(market.job_id)
    ended = run("cancel", "twice", "--yes")
    assert (ended.status, "2 jobs called 'twice' have not ended; give an id" in ended.err) == (2, True)
    assert market.routes("POST") == []


def test_show_lists_each_attempt_with_its_ending(run: Run, market: FakeMarketplace) -> None:
    lost = an_attempt(1, "bob", state="lost", reason="node_silent", fault="provider")
    market.job |= {"state": "running", "attempts": [lost, an_attempt(2, "carol", resumed_from_step=50)]}
    ended = run("show", market.job_id)
    for text in ("running", "lost", "node_silent, fault: provider", "carol", "50"):
        assert text in ended.out


def test_names_from_the_market_cannot_style_the_terminal(run: Run, market: FakeMarketplace) -> None:
    market.job |= {"name": "[bold red]x[/]", "message": "[link=http://mallory.example]y[/]"}
    ended = run("show", market.job_id)
    assert "[bold red]x[/]" in ended.out
    assert "[link=http://mallory.example]y[/]" in ended.out


def test_texts_of_strangers_cannot_steer_the_terminal(run: Run, market: FakeMarketplace) -> None:
    market.job |= {"message": "\x1b[2J\x9bH\u202egone", "attempts": [an_attempt(1, "bob", message="\x1b]0;owned\x07")]}
    ended = run("show", market.job_id)
    assert "gone" in ended.out
    assert "owned" in ended.out
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(ended.out)


def test_cancel_and_resume_say_where_the_job_is(run: Run, market: FakeMarketplace) -> None:
    assert "being cancelled" in run("cancel", market.job_id, "--yes").out
    assert "$5.50 in all" in run("resume", market.job_id, "--max-total", "5.50").out
    ended = run("resume", market.job_id, "--max-total", "lots")
    assert (ended.status, "write dollars" in ended.err) == (2, True)


def test_lists_are_read_by_machines_and_people(run: Run) -> None:
    for command, shown in (
        ("jobs", "tiny"),
        ("offers", "2 x H100"),
        ("provider nodes", "2 x H100"),
        ("provider links", "bob - rack-2"),
    ):
        assert isinstance(run(*command.split(), "--json").json, list)
        assert shown in run(*command.split()).out


def test_add_node_prints_the_line_to_run(run: Run, market: FakeMarketplace) -> None:
    line = f"curl -fsSL {market.url}/install.sh | sh -s -- --token t"
    assert line in run("provider", "add-node").out
    assert run("provider", "add-node", "--json").json["command"] == line


def test_server_commands_are_loaded_when_called(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    server = typer.Typer()

    @server.command()
    def up(data: str = "", *, port: int = 0) -> None:
        called.append(f"{data} {port}")
        raise typer.Exit(3)

    monkeypatch.setattr(EntryPoint, "load", lambda _: server)
    _only(monkeypatch, EntryPoint("up", "somewhere:app", cli.ENTRY_POINTS))
    assert "Start a whole marketplace" in run("--help").out
    assert called == []
    assert run("up", "--data", "/x", "--port", "7").status == 3
    assert called == ["/x 7"]
    assert "--data" in run("up", "--help").out


def test_server_command_without_the_server_says_what_to_install(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, EntryPoint("ledger", "no_such_package.ledger:app", cli.ENTRY_POINTS))
    ended = run("ledger", "verify")
    assert ended.status == 2
    assert "pip install 'gpusouk[server]'" in ended.err


def test_unexpected_error_is_one_line_without_a_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.client.sdk.Souk.balance", lambda _: 1 / 0)
    ended = run("balance")
    assert ended.status == 1
    assert "Unexpected ZeroDivisionError" in ended.err
    assert "Traceback" not in ended.err
    assert json.loads(run("balance", "--json").out)["error"]["code"] == "unexpected"


def _only(monkeypatch: pytest.MonkeyPatch, entry: EntryPoint) -> None:
    """The one server command there is; the command line is as it was afterwards."""
    monkeypatch.setattr(cli, "entry_points", lambda group: [entry])
    monkeypatch.setattr(cli, "_whole", cli._whole.__wrapped__)  # not the one that is kept
    own = [command for command in cli.app.registered_commands if command.rich_help_panel != "Operators"]
    monkeypatch.setattr(cli.app, "registered_commands", own)


class _Stdin:
    """A pipe with one line in it."""

    def __init__(self, line: str) -> None:
        self._line = line

    def readline(self) -> str:
        return self._line

    def isatty(self) -> bool:
        return False


class _Terminal(_Stdin):
    def isatty(self) -> bool:
        return True
