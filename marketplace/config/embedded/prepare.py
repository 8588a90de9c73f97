"""Brings the database to this version and makes sure that there is an operator; a process of its own, before web.

Its last line of output is JSON: {"operator": e-mail, "has_first_password": bool, "warning": sentence or ""}, or
{"error": sentence}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

import django

OUR_PACKAGES = frozenset({"marketplace", "billing", "jobs"})


def main() -> int:
    """Check, migrate, give privileges, publish the agent, find the operator; exit status 1 with one sentence if not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--admin-email", required=True)
    parser.add_argument("--open-signup", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "marketplace.config.settings")
    django.setup()

    from django.core.checks import Tags, run_checks
    from django.core.management import call_command

    from marketplace.config.database_age import check_age

    problems = [problem for problem in run_checks(tags=[Tags.security]) if problem.is_serious()]
    if problems:
        return _fail(" ".join(f"{problem.msg} {problem.hint or ''}".strip() for problem in problems))
    if unknown := unknown_migrations():
        return _fail(f"The database was made by a newer Souk ({unknown[0]} is not known here); upgrade Souk first.")
    if too_old := check_age(None, databases=["default"]):
        return _fail(f"{too_old[0].msg} {too_old[0].hint}")
    call_command("migrate", interactive=False, verbosity=1)
    try:
        warnings = [give_privileges(os.environ.get("SOUK_DATABASE_ROLE", "")), publish_agent()]
    except ValueError as error:
        return _fail(
            f"The servers' role in DATABASE_URL would protect nothing: {error}. Make one of its own "
            "(docs/operator-money.md, `A role of its own`)."
        )
    warning = " ".join(filter(None, warnings))
    email, has_first_password = _require_operator(arguments.admin_email)
    if arguments.open_signup:
        _open_signup()
    answer = {"operator": email, "has_first_password": has_first_password, "warning": warning}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def give_privileges(role: str) -> str:
    """The servers' role has what it needs of the tables as they are now; a warning where the operator named none.

    Raises ValueError for a role that could give itself more.
    """
    from django.db import connection

    from billing.books.sql_privileges import check_privileges, check_role, privileges_for

    if not role:
        return (
            "The servers use the database as the owner of its tables: whoever gets a statement of theirs changed can "
            "rewrite what was booked. Make a role for them (docs/operator-money.md, `A role of its own`), name it in "
            "DATABASE_URL, and the owner in SOUK_DATABASE_OWNER_URL."
        )
    privileges = privileges_for(role)
    check_role(role)
    with connection.cursor() as cursor:
        cursor.execute(privileges)
    check_privileges(role)
    return ""


def publish_agent() -> str:
    """This code's agent is published; where a newer one was published before, that one stays, and the warning says so.

    A server that was rolled back to an older version must start: its operator rolls the nodes back by hand.
    """
    from django.core.management import CommandError, call_command

    from marketplace.nodes.errors import ReleaseUnfit

    try:
        call_command("publish_agent")
    except CommandError as error:
        if not isinstance(error.__cause__, ReleaseUnfit):
            raise
        return f"This code's agent is not published: {error} To roll the nodes back: python manage.py rollout back"
    return ""


def unknown_migrations() -> list[str]:
    """Applied migrations of our own apps that this version does not have: the data is newer than the program."""
    from django.apps import apps
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    ours = {each.label for each in apps.get_app_configs() if each.name.partition(".")[0] in OUR_PACKAGES}
    loader = MigrationLoader(connection)
    replaced = {key for migration in loader.replacements.values() for key in migration.replaces}
    return sorted(
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in ours and (app, name) not in loader.disk_migrations and (app, name) not in replaced
    )


def _require_operator(email: str) -> tuple[str, bool]:
    """The e-mail address of an operator who can sign in, and whether the generated password is still theirs."""
    from marketplace.accounts.models import User

    password = os.environ["SOUK_ADMIN_PASSWORD"]
    found = User.objects.filter(is_superuser=True, is_active=True).order_by("created_at").first()
    if found:
        return found.email, found.check_password(password)
    made = User.objects.create_superuser(email, password)
    return made.email, True


def _open_signup() -> None:
    from marketplace.accounts.models import SignupPolicy, SitePolicy

    policy = SitePolicy.current()
    policy.signup = SignupPolicy.OPEN
    policy.save(update_fields=["signup"])


def _fail(sentence: str) -> int:
    sys.stdout.write(json.dumps({"error": sentence}) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
