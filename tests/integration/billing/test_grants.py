"""The servers' role runs the marketplace and can rewrite nothing, not even with the triggers in its way removed."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction

from billing.books.hash_chain import chain_transfers
from billing.books.sql_privileges import IMMUTABLE, UPDATABLE, check_privileges, check_role, privileges_for
from billing.charging import holds, metering, settlement
from billing.charging.settlement import LeaseCharge
from billing.models import DailyRoot
from marketplace.accounts.erasure import erase
from marketplace.accounts.models import User
from marketplace.foundation import clock
from marketplace.foundation.models import Event
from tests.integration.billing.scenes import DOLLAR, Meter, assert_ledger_is_true, available, fund

ROLE = "souk_app"
WITHOUT_ID = {
    "billing_dailyroot": "root = ''",
    "billing_solvencyreport": "body = '{}'",
    "foundation_eventseal": "events = 0",
}


@pytest.fixture
def as_the_servers(alice: UUID) -> UUID:
    """From here on the connection is the servers' role; the role is gone with the test's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"CREATE ROLE {ROLE}")
        cursor.execute(privileges_for(ROLE))
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        cursor.execute(f"SET LOCAL ROLE {ROLE}")
    return alice


def refused(statement: str) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    except ProgrammingError as error:
        return "permission denied" in str(error) or "must be owner" in str(error)
    return False


def test_P05_the_servers_role_moves_money_and_seals_it(
    as_the_servers: UUID, bob: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, meter = as_the_servers, Meter()
    fund(alice)
    holds.place_hold(owner_id=alice, job_id=meter.job_id, amount=DOLLAR)
    holds.extend_hold(meter.job_id, amount=DOLLAR)
    metering.accept_receipts(meter.terms, [meter.read(1000)], observed_ms=1000)
    settlement.settle_job(job_id=meter.job_id, charges=[LeaseCharge(meter.lease_id, bob, DOLLAR)], fee_bps=1000)
    job_id = uuid4()
    holds.place_hold(owner_id=alice, job_id=job_id, amount=DOLLAR)
    holds.release_hold(job_id)
    settlement.release_pending(clock.now() + timedelta(days=365))
    tomorrow = clock.now() + timedelta(days=1)
    monkeypatch.setattr(clock, "now", lambda: tomorrow)
    assert chain_transfers() > 0
    assert DailyRoot.objects.exists()
    assert available(alice) == 19 * DOLLAR
    assert_ledger_is_true()


@pytest.mark.parametrize("table", [*IMMUTABLE, *UPDATABLE])
def test_P05_the_servers_role_rewrites_nothing(as_the_servers: UUID, table: str) -> None:
    assert refused(f"DELETE FROM {table}")
    assert refused(f"TRUNCATE {table}")
    assert refused(f"UPDATE {table} SET {WITHOUT_ID.get(table, 'id = id')}")
    assert refused(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    assert refused("UPDATE billing_account SET credits_posted = 10, rolled_seq = 10")


def test_P05_the_servers_role_erases_a_person_from_the_events(as_the_servers: UUID) -> None:
    user = User.objects.create_user("carol@example.org")
    event = Event.objects.create(subject_kind="job", subject_id=uuid4(), to_state="queued", actor=user.email)
    erased = erase(user.pk)
    event.refresh_from_db()
    assert event.actor == erased.email
    assert_ledger_is_true()


@pytest.mark.parametrize("names", ["'system', 'system'", "'a@b.c', 'mallory'", "'system', repeat('0', 32) || '@x'"])
def test_P05_nobody_else_takes_an_actors_place(as_the_servers: UUID, names: str) -> None:
    with pytest.raises(IntegrityError, match="pseudonym"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SELECT foundation_forget_actor({names})")


def test_P05_the_servers_role_makes_no_table_in_front_of_the_real_one(as_the_servers: UUID) -> None:
    """Functions that move sums run as the owner, and would find a temporary table first."""
    assert refused("CREATE TEMP TABLE billing_account (id uuid)")
    assert refused("CREATE TABLE billing_mine (id uuid)")


@pytest.fixture
def as_the_servers_of_an_old_cluster(alice: UUID) -> None:
    """As after an upgrade from PostgreSQL 14, where everybody could make things in `public`, and GRANT ALL was easy."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        cursor.execute(f"CREATE ROLE {ROLE}")
        cursor.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {ROLE}")
        cursor.execute(f"CREATE SCHEMA mine AUTHORIZATION {ROLE}")
        cursor.execute(privileges_for(ROLE))
        check_privileges(ROLE)
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        cursor.execute(f"SET LOCAL ROLE {ROLE}")


def test_P05_no_function_of_the_owner_meets_anything_of_the_servers_role(
    as_the_servers_of_an_old_cluster: None,
) -> None:
    """Neither an operator that fits better than the real one, nor a table whose rows move sums."""
    assert refused("CREATE FUNCTION public.same(varchar, varchar) RETURNS bool LANGUAGE sql AS 'SELECT true'")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE mine.transfers (LIKE billing_transfer)")
    moves = "AFTER INSERT ON {} REFERENCING NEW TABLE AS inserted EXECUTE FUNCTION billing_apply_transfers()"
    assert refused("CREATE TRIGGER t " + moves.format("mine.transfers"))
    assert refused("CREATE TRIGGER t " + moves.format("billing_transfer"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("GRANT UPDATE ON billing_transfer TO PUBLIC", "UPDATE on billing_transfer"),
        (
            "CREATE ROLE others; GRANT DELETE ON foundation_event TO others; GRANT others TO {role}",
            "DELETE on foundation",
        ),
        ("GRANT pg_write_all_data TO {role}", "UPDATE on"),
        ("GRANT pg_execute_server_program TO {role}", "pg_execute_server_program"),
        ("GRANT SET ON PARAMETER session_replication_role TO {role}", "session_replication_role"),
        ("GRANT CREATE ON SCHEMA public TO {role}", "CREATE in public"),
        ("DO $$ BEGIN EXECUTE format('GRANT TEMP ON DATABASE %I TO {role}', current_database()); END $$", "temporary"),
    ],
)
def test_what_a_role_has_from_elsewhere_is_found(db: None, given: str, why: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {ROLE} NOINHERIT")
        cursor.execute(privileges_for(ROLE))
        check_privileges(ROLE)
        cursor.execute(given.format(role=ROLE))
    with pytest.raises(ValueError, match=why):
        check_privileges(ROLE)


def test_a_member_of_a_superuser_is_refused(db: None) -> None:
    """Its attributes are not inherited, and SET ROLE takes them; it need own no table."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE souk_root SUPERUSER; CREATE ROLE {ROLE} IN ROLE souk_root")
    with pytest.raises(ValueError, match="superuser"):
        check_role(ROLE)


def test_a_role_is_a_plain_name() -> None:
    with pytest.raises(ValueError, match="not a role's name"):
        privileges_for("souk; DROP TABLE billing_transfer")


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ("SUPERUSER", "superuser"),
        ("CREATEROLE", "makes roles"),
        ("IN ROLE CURRENT_USER", "who owns the tables"),
        ("NOINHERIT IN ROLE CURRENT_USER", "who owns the tables"),
    ],
)
def test_a_role_that_could_give_itself_more_is_refused(db: None, attributes: str, why: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        owner = cursor.fetchone()[0]
        cursor.execute(f"CREATE ROLE {ROLE} {attributes.replace('CURRENT_USER', owner)}")
    with pytest.raises(ValueError, match=why):
        check_role(ROLE)


def test_a_role_that_is_not_there_is_refused_and_one_of_its_own_is_not(db: None) -> None:
    with pytest.raises(ValueError, match="no role"):
        check_role(ROLE)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {ROLE}")
    check_role(ROLE)
