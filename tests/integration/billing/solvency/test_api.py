"""Who may read what: everybody the sums, each organisation its own accounts, and nobody anybody else's."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from django.test import Client
from rest_framework.test import APIClient

from billing.charging import holds
from billing.models import SolvencyReport
from billing.proofs import solvency
from marketplace.accounts.models import Membership, Organisation, Role, User
from marketplace.accounts.scopes import Scope
from tests.integration.billing.scenes import DOLLAR, fund
from tests.integration.billing.solvency.scenes import publish
from tests.people import join, sign

pytestmark = pytest.mark.django_db
PROOF, REPORTS = "/api/v1/solvency/proof", "/api/v1/solvency/reports"


def member_of(name: str) -> Membership:
    user = User.objects.create_user(f"{name}@example.org")
    organisation = Organisation.objects.create(name=name)
    fund(organisation.pk)
    return Membership.objects.create(user=user, organisation=organisation, role=Role.OWNER)


def test_each_organisation_gets_its_own_accounts_and_salts_alone() -> None:
    alice, bob = member_of("alice"), member_of("bob")
    job_id = uuid4()
    holds.place_hold(owner_id=alice.organisation_id, job_id=job_id, amount=DOLLAR)
    publish()
    salts = {}
    for owner, count in ((alice, 2), (bob, 1)):
        answer = sign(owner, [Scope.BILLING_READ]).get(PROOF)
        assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "private, no-store")
        page = solvency.ProofPage.model_validate(answer.json())
        assert {each.owner_id for each in page.accounts} == {owner.organisation_id} and len(page.accounts) == count
        report = solvency.read_report(page.report)
        assert sum(solvency.check_accounts(report, page.accounts, owner.organisation_id).values()) == 10 * DOLLAR
        salts[owner.pk] = {each.salt for each in page.accounts}
        other = bob if owner is alice else alice
        assert str(other.organisation_id) not in answer.content.decode()
        assert (str(job_id) in answer.content.decode()) == (owner is alice)
    assert not salts[alice.pk] & salts[bob.pk]


def test_only_those_who_may_read_the_money_get_an_answer() -> None:
    owner = member_of("alice")
    publish()
    assert APIClient().get(PROOF).status_code == 401
    assert sign(owner, sorted(set(Scope) - {Scope.BILLING_READ})).get(PROOF).status_code == 403
    assert sign(join(owner, "carol", Role.BILLING), [Scope.BILLING_READ]).get(PROOF).status_code == 200
    mallory = member_of("mallory")  # funded after the report
    answer = sign(mallory).get(f"{PROOF}?owner_id={owner.organisation_id}&organisation={owner.organisation_id}")
    assert (answer.status_code, answer.json()["accounts"]) == (200, [])


def test_what_is_published_names_nobody(alice: UUID, client: Client) -> None:
    publish()
    report = SolvencyReport.objects.get()
    for path in (REPORTS, f"{REPORTS}/1", "/solvency"):
        answer = client.get(path, SERVER_NAME="localhost")
        text = answer.content.decode()
        assert answer.status_code == 200 and "public" in answer.headers["Cache-Control"]
        assert str(alice) not in text and bytes(report.secret).hex() not in text
        assert report.commitment in text or report.body["assets"][0]["root"] in text


def test_the_page_shows_the_sealed_roots_and_says_what_they_do_not_prove(alice: UUID, client: Client) -> None:
    before = client.get("/solvency", SERVER_NAME="localhost").content.decode()
    assert "None is sealed yet." in before
    report = publish()
    page = client.get("/solvency", SERVER_NAME="localhost").content.decode()
    root = report.body["assets"][0]["root"]
    for text in (report.commitment, root, "1 account, root", "souk solvency --verify", "What this does not prove"):
        assert text in page, text


def test_reports_come_in_pages_and_an_old_one_by_its_number(alice: UUID, client: Client) -> None:
    for _ in range(3):
        publish()
        fund(alice)
    found = client.get(REPORTS, SERVER_NAME="localhost").json()
    assert [each["body"]["number"] for each in found["results"]] == [3, 2, 1] and found["next_before"] is None
    assert [
        each["body"]["number"] for each in client.get(f"{REPORTS}?before=2", SERVER_NAME="localhost").json()["results"]
    ] == [1]
    assert client.get(f"{REPORTS}/2", SERVER_NAME="localhost").json() == found["results"][1]


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "", "%00", "٥", "9" * 17, "1e3", "' OR 1=1", "+1", " 1"])
def test_what_is_no_number_is_refused(alice: UUID, client: Client, text: str) -> None:
    publish()
    owner = sign(member_of("bob"))
    for path in (f"{PROOF}?report={text}", f"{PROOF}?page={text}", f"{REPORTS}?before={text}"):
        asker = owner if PROOF in path else client
        answer = asker.get(path, SERVER_NAME="localhost")
        assert answer.status_code == 400, path


def test_numbers_that_are_not_there_lead_nowhere(client: Client) -> None:
    owner = sign(member_of("alice"))
    assert owner.get(PROOF).json()["code"] == "solvency_report_not_found"
    publish()
    for path in (f"{PROOF}?report=2", f"{PROOF}?report=0", f"{REPORTS}/2", f"{REPORTS}/{2**53}"):
        assert owner.get(path).status_code == 404, path
    assert owner.get(f"{REPORTS}/{10**30}").status_code == 400
    assert owner.get(f"{PROOF}?page=7").json()["accounts"] == []
    assert client.get(f"{REPORTS}?before=0", SERVER_NAME="localhost").json()["results"] == []
