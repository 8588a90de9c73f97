"""Members, invitations, limits, disputes, refunds, invoices and figures by command, against the real server."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from billing import invoices, tasks
from billing.fiat import topups
from billing.models import Dispute, TopUp
from jobs.client import cli
from jobs.client.exit_codes import ExitCode
from jobs.models import Job, Lease
from jobs.running.curves import follow_curve
from marketplace.accounts import api_keys, organisations
from marketplace.accounts.models import Invitation, Membership, Organisation, User
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.nodes.models import Metric
from tests import stage
from tests.fakes.stripe import start_fake
from tests.integration.billing.fiat import scenes
from tests.integration.billing.payouts.loopback import be_on_loopback
from tests.people import join
from tests.stage import DOLLAR

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice() -> Organisation:
    return stage.organisation("alice", usd_micros=50 * DOLLAR)


@pytest.fixture
def souk(alice: Organisation, live_server: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, settings: Any) -> Any:
    be_on_loopback(settings)
    settings.SOUK_API_URL, settings.SOUK_FAKE_MONEY = live_server.url, True
    monkeypatch.setattr(tasks.dispatch_due, "delay", lambda: None)
    monkeypatch.setenv("SOUK_SERVER", live_server.url)
    sign_in(alice, monkeypatch)

    def call(*words: str, status: int = 0) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main([*words])
        out, err = capsys.readouterr()
        assert left.value.code == status, out + err
        if "--json" in words:
            return json.loads(out)
        return out if status == 0 else err

    return call


def sign_in(organisation: Organisation, monkeypatch: pytest.MonkeyPatch, user: User | None = None) -> None:
    """From now on the command acts for this organisation."""
    user = user or organisation.members.first()
    assert user is not None
    _, text = api_keys.issue(user=user, organisation=organisation, name="test", scopes=list(Scope))
    monkeypatch.setenv("SOUK_API_KEY", text)


@pytest.fixture
def charged(alice: Organisation, settings: Any) -> tuple[Job, Lease]:
    """A job of Alice's that Bob's node was paid for, while it can be contested."""
    settings.SOUK_CHALLENGE_SECONDS = 86_400
    stage.node("bobs-node")
    job, (lease,) = stage.running_job(alice)
    stage.see_running(lease, seconds=60)
    stage.bill(lease, ms=60_000)
    stage.finish(lease)
    return job, lease


def test_members_get_roles_and_leave(souk: Any, alice: Organisation) -> None:
    carol = join(Membership.objects.get(organisation=alice), "carol", "member")
    assert "carol@example.org" in souk("members", "list")
    assert {row["role"] for row in souk("members", "list", "--json")} == {"owner", "member"}
    assert souk("members", "role", "carol@example.org", "billing") == "carol@example.org is billing now.\n"
    assert "is no role" in souk("members", "role", "carol@example.org", "king", status=ExitCode.USAGE)
    assert "No member is called" in souk("members", "remove", "dave@example.org", status=ExitCode.USAGE)
    assert "add --yes" in souk("members", "remove", "carol@example.org", status=ExitCode.USAGE)
    souk("members", "remove", str(carol.user_id)[:8], "--yes")
    assert not Membership.objects.filter(pk=carol.pk).exists()


def test_an_invitation_is_made_accepted_and_withdrawn(
    souk: Any, alice: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = souk("invitations", "create", "carol@example.org", "--role", "billing").strip()
    souk("invitations", "create", "dave@example.org")
    assert "carol@example.org" in souk("invitations", "list")
    souk("invitations", "revoke", "dave@example.org")
    assert [row["email"] for row in souk("invitations", "list", "--json")] == ["carol@example.org"]
    carol = User.objects.create_user("carol@example.org", "correct horse battery")
    own = organisations.create(carol, "Carol's").organisation
    sign_in(own, monkeypatch, carol)
    assert "You belong to alice. To act for it: souk login --organisation 'alice'" in souk(
        "invitations", "accept", token
    )
    assert Membership.objects.get(organisation=alice, user=carol).role == "billing"
    assert Invitation.objects.get(email="carol@example.org").accepted_at is not None


def test_limits_are_set_shown_and_removed(souk: Any, alice: Organisation) -> None:
    carol = join(Membership.objects.get(organisation=alice), "carol", "member")
    assert "No limits" in souk("limits", "list")
    assert souk("limits", "set", "500") == "The organisation may spend $500.00 a month.\n"
    souk("limits", "set", "0", "--member", "carol@example.org", "--period", "job")
    [month, each] = sorted(souk("limits", "list", "--json"), key=lambda row: row["period"], reverse=True)
    assert (each["member_id"], each["amount_usd_micros"]) == (str(carol.user_id), "0")
    shown = souk("limits", "list")
    assert "carol@example.org" in shown and "all together" in shown and "$500.00" in shown
    souk("limits", "remove", month["id"][:8], "--yes")
    assert len(souk("limits", "list", "--json")) == 1
    assert "write dollars" in souk("limits", "set", "lots", status=ExitCode.USAGE)
    assert "--period is month or job" in souk("limits", "set", "5", "--period", "year", status=ExitCode.USAGE)


def test_the_card_is_charged_by_itself_only_while_it_is_told_to(souk: Any) -> None:
    assert "`souk auto-topup set` begins it" in souk("auto-topup", "show", status=ExitCode.REFUSED)
    rule = ("auto-topup", "set", "--below", "20", "--amount", "50", "--monthly-max", "200")
    assert "$50.00 whenever the balance is below $20.00, at most $200.00 in 30 days" in souk(*rule)
    assert souk("auto-topup", "off").startswith("Off. It was: $50.00")
    assert souk("auto-topup", "show", "--json")["is_enabled"] is False
    assert "--below much" in souk(*rule[:2], "--below", "much", *rule[4:], status=ExitCode.USAGE)


def test_top_ups_are_listed_and_a_refund_is_refused_with_its_reason(souk: Any) -> None:
    assert "Nothing was paid in" in souk("topups")
    souk("topup", "25", "--no-wait")
    top_up = TopUp.objects.get()
    topups.pay_fake(top_up.pk)
    assert str(top_up.pk) in souk("topups")
    assert "Nothing of it was sent back" in souk("refunds", "list", str(top_up.pk)[:8])
    pretended = ("refunds", "create", str(top_up.pk), "--amount", "12.50", "--yes")
    assert "it was only pretended" in souk(*pretended, status=ExitCode.REFUSED)
    assert "No top-up is called" in souk("refunds", "create", str(uuid.uuid4()), status=ExitCode.USAGE)


def test_a_top_up_is_refunded_to_its_card(souk: Any, alice: Organisation, settings: Any) -> None:
    with start_fake() as stripe:
        settings.SOUK_STRIPE_KEY, settings.SOUK_STRIPE_API_BASE = stripe.secret_key, stripe.url
        settings.SOUK_STRIPE_WEBHOOK_SECRETS = [stripe.webhook_secret]
        stripe.clock.advance(int(clock.now().timestamp()) - stripe.clock.now())
        top_up = scenes.pay_in(stripe, alice.pk)
        scenes.fund_platform(stripe)
        made = souk("refunds", "create", str(top_up.pk), "--amount", "12.50", "--yes", "--json")
        assert made["amount_usd_micros"] == "12500000"
        scenes.call_due()
        assert "$12.50" in souk("refunds", "list", str(top_up.pk))
        assert "go back to the card" in souk("refunds", "create", str(top_up.pk), "--yes"), "all that is left"


def test_a_charge_is_contested_answered_and_withdrawn(
    souk: Any, charged: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job, lease = charged
    (tmp_path / "steps.csv").write_text("1,2\n")
    said = souk("disputes", "open", job.name, "--text", "It was slow.", "--attach", str(tmp_path / "steps.csv"))
    dispute = Dispute.objects.get()
    assert (dispute.lease_id, dispute.text, dispute.attachments[0]["name"]) == (lease.pk, "It was slow.", "steps.csv")
    assert "you are the customer" in said and dispute.attachments[0]["sha256"] in said
    assert str(dispute.pk) in souk("disputes", "list")
    bob = lease.node.provider.organisation
    sign_in(bob, monkeypatch)
    assert "All 300 steps." in souk("disputes", "answer", str(dispute.pk)[:8], "--text", "All 300 steps.")
    alice = Organisation.objects.get(name="alice")
    sign_in(alice, monkeypatch)
    shown = souk("disputes", "show", str(dispute.pk))
    assert "It was slow." in shown and "All 300 steps." in shown
    assert souk("disputes", "withdraw", str(dispute.pk), "--yes", "--json")["state"] == "withdrawn"


def test_what_cannot_be_contested_is_said_with_its_reason(souk: Any, alice: Organisation) -> None:
    stage.node("bobs-node")
    job = stage.submit(alice)
    assert "nothing to contest" in souk("disputes", "open", job.name, "--text", "No.", status=ExitCode.USAGE)
    missing = ("disputes", "open", job.name, "--text", "No.", "--attach", "/nowhere/file")
    assert "--attach /nowhere/file cannot be read" in souk(*missing, status=ExitCode.USAGE)


def test_invoices_are_listed_shown_and_saved(
    souk: Any, charged: tuple[Job, Lease], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "No invoice yet" in souk("invoices", "list")
    later = clock.now() + timedelta(days=40)
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now", lambda: later)
        assert invoices.issue_due() == 1
    [invoice] = souk("invoices", "list", "--json")
    assert invoice["number"] in souk("invoices", "list")
    assert "total $" in souk("invoices", "show", invoice["number"])
    paper, sheet = tmp_path / "invoice.pdf", tmp_path / "invoice.csv"
    souk("invoices", "save", invoice["number"], "--output", str(paper))
    souk("invoices", "save", invoice["id"][:8], "--output", str(sheet), "--json")
    assert paper.read_bytes().startswith(b"%PDF")
    assert invoice["number"] in sheet.read_text()
    wrong = ("invoices", "save", invoice["number"], "--output", str(tmp_path / "invoice.doc"))
    assert "ends in none of .pdf, .csv" in souk(*wrong, status=ExitCode.USAGE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["invoice.csv", "invoice.pdf"]


def test_figures_of_a_job_are_a_series_a_line(souk: Any, charged: tuple[Job, Lease]) -> None:
    job, lease = charged
    assert "No figures of the last 1h" in souk("metrics", job.name)
    for minutes, mean, highest in ((2, 40.0, 90.0), (1, 60.0, 70.0)):
        at = (clock.now() - timedelta(minutes=minutes)).replace(second=0, microsecond=0)
        values = {"cpu_percent": [mean, highest]}
        Metric.objects.create(node=lease.node, lease_id=lease.pk, at=at, seconds=60, values=values)
    line = next(line for line in souk("metrics", job.name).splitlines() if "cpu_percent" in line)
    assert line.split()[:6] == ["1", "0", "cpu_percent", "60", "50", "90"]
    assert len(souk("metrics", job.name, "--since", "2d", "--json")["points"]) == 2
    assert "--since soon" in souk("metrics", job.name, "--since", "soon", status=ExitCode.USAGE)


def test_the_curve_of_a_job_is_drawn_above_its_figures(souk: Any, charged: tuple[Job, Lease]) -> None:
    job, _ = charged
    for step in (1, 2, 3):
        event = {"event": "step", "step": step, "loss": 3 / step, "metrics": {"accuracy": step / 9}}
        follow_curve(job.pk, 1, [event])
    lines = souk("metrics", job.name).splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["loss", "█▃▁", "1", "1", "3"],
        ["accuracy", "▁▄█", "0.3333", "0.3333", "3"],
    ]
    (loss, _) = souk("metrics", job.name, "--json")["curve"]["series"]
    assert [(point["first_step"], point["newest"]) for point in loss["points"]] == [(1, 3.0), (2, 1.5), (3, 1.0)]


def test_the_curve_of_a_job_is_exported(souk: Any, charged: tuple[Job, Lease], tmp_path: Path) -> None:
    job, _ = charged
    into = ("--export", "csv", "--into", str(tmp_path / "curve"))
    assert "has reported no figures yet" in souk("metrics", job.name, *into, status=ExitCode.TRANSFER_FAILED)
    follow_curve(job.pk, 1, [{"event": "step", "step": step, "loss": 3 / step} for step in (1, 2, 3)])
    assert str(tmp_path / "curve" / "curve.csv") in souk("metrics", job.name, *into)
    lines = (tmp_path / "curve" / "curve.csv").read_text().splitlines()
    assert lines[1:] == [f"loss,1,{step},{step},1," + ",".join([str(3 / step)] * 4) for step in (1, 2, 3)]
    assert "not an empty folder" in souk("metrics", job.name, *into, status=ExitCode.USAGE)
    assert "go together" in souk("metrics", job.name, "--export", "csv", status=ExitCode.USAGE)


def test_earnings_before_a_profile_say_how_to_begin(souk: Any) -> None:
    for command in ("earnings", "nodes", "links"):
        said = souk("provider", command, status=ExitCode.REFUSED)
        assert said == "You do not rent out anything yet. `souk provider add-node` begins it.\n"
    assert souk("provider", "earnings", "--json", status=ExitCode.REFUSED)["error"]["code"] == "no_provider"
    assert "Nothing was paid out yet. `souk provider pay-to` says" in souk("provider", "payouts")
