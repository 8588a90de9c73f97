"""The database runs the functions of `billing/sql/`: a changed file needs a migration that installs it again."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from billing.functions import FOLDER

BODY = re.compile(r"CREATE OR REPLACE FUNCTION (\w+)\((?:r (\w+)\))?.*?AS \$\$(.*?)\$\$;", re.DOTALL)
FUNCTIONS = [match.groups() for file in sorted(FOLDER.glob("*.sql")) for match in BODY.finditer(file.read_text())]


@pytest.mark.django_db
@pytest.mark.parametrize(("name", "row", "body"), FUNCTIONS, ids=[f"{name}-{row or ''}" for name, row, _ in FUNCTIONS])
def test_a_function_in_the_database_is_the_one_in_its_file(name: str, row: str | None, body: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT prosrc FROM pg_proc WHERE proname = %s"
            " AND (%s::text IS NULL OR pg_get_function_identity_arguments(oid) = %s)",
            [name, row, f"r {row}"],
        )
        assert cursor.fetchall() == [(body,)]


def test_every_file_has_functions() -> None:
    assert len(FUNCTIONS) > len(list(FOLDER.glob("*.sql")))
