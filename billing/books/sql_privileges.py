"""What a database role of the application may do: everything but rewrite what was posted.

The triggers refuse it too, but an owner of the tables can switch them off. A role that only has these grants cannot, so
in production the migrations run as the owner and the servers as this role.
"""

from __future__ import annotations

import re
from typing import Final

from django.db import connection

# Never updated, never deleted: not even by a query typed as this role.
IMMUTABLE: Final = (
    "billing_asset",
    "billing_dailyroot",
    "billing_deposit",
    "billing_receiptevidence",
    "billing_settlement",
    "billing_solvencyreport",
    "billing_usagereceipt",
    "foundation_event",
    "foundation_eventseal",
)
# Of these only some columns may be written; the sums are moved by a trigger, which runs as their owner.
UPDATABLE: Final = {
    "billing_account": ("is_frozen",),
    "billing_hold": ("state", "amount", "closed_at"),
    "billing_settlementshare": ("released_at", "is_disputed"),
    "billing_topup": (
        "state",
        "reason",
        "message",
        "session_id",
        "checkout_url",
        "intent_id",
        "charge_id",
        "amount",  # less, where less was paid than asked for
        "tax",
        "fee",
        "credited_at",
        "spendable_at",
    ),
    "billing_transfer": ("prev_hash", "hash"),
}
# Functions that run as the owner would find a temporary table of the role's before the real one.
_NO_TEMPORARY: Final = """DO $$ BEGIN
    EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database());
END $$;"""
# Nor may an operator or function of the role's fit their calls better than the real one.
_NOTHING_NEW: Final = "REVOKE CREATE ON SCHEMA public FROM PUBLIC;"
# It moves the sums of accounts by the rows of the table that it is a trigger of: else of a table of the role's own.
# A trigger that is there needs no such privilege.
_NO_TRIGGER: Final = "REVOKE EXECUTE ON FUNCTION billing_apply_transfers() FROM PUBLIC, {role};"
# Their members do whatever the server's operating-system user can.
_AS_THE_SERVER: Final = ("pg_execute_server_program", "pg_write_server_files")
_SINCE_15: Final = "session_replication_role"  # before, no privilege of it could be given
_OTHERS: Final = {
    "CREATE in public": "has_schema_privilege(r.oid, 'public', 'CREATE')",
    "temporary tables": "has_database_privilege(r.oid, current_database(), 'TEMPORARY')",
    _SINCE_15: "has_parameter_privilege(r.oid, 'session_replication_role', 'SET')",
    **{name: f"r.rolname = '{name}'" for name in _AS_THE_SERVER},
}
_ROLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def privileges_for(role: str) -> str:
    """SQL that gives `role` what the servers need of the present tables, and takes the rest.

    Run it as the owner of the tables after every migration. Raises ValueError for what is not a plain role's name.
    """
    if not _ROLE.fullmatch(role):
        raise ValueError(f"{role!r} is not a role's name: lower case letters, digits and _ only")
    lines = [
        _NO_TEMPORARY,
        _NOTHING_NEW,
        f"REVOKE CREATE ON SCHEMA public FROM {role};",
        f"GRANT USAGE ON SCHEMA public TO {role};",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role};",
        f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {role};",
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {role};",
        f"REVOKE TRUNCATE, TRIGGER ON ALL TABLES IN SCHEMA public FROM {role};",
        _NO_TRIGGER.format(role=role),
    ]
    lines += [f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM {role};" for table in (*IMMUTABLE, *UPDATABLE)]
    for table, names in UPDATABLE.items():
        present = _columns_of(table)
        lines.append(f"GRANT UPDATE ({', '.join(name for name in names if name in present)}) ON {table} TO {role};")
    return "\n".join(lines) + "\n"


def check_role(role: str) -> None:
    """Raise ValueError where `role` could do what its privileges leave out, or is no role here.

    A superuser passes every check of privileges; an owner of tables, or its member, gives itself what it lacks.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = %s", [role])
        found = cursor.fetchone()
        if found is None:
            raise ValueError(f"there is no role {role} in the database")
        if any(found):
            raise ValueError(f"{role} is a superuser or makes roles")
        cursor.execute(
            "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
            " AND pg_has_role(%s, tableowner, 'MEMBER')",
            [role],
        )
        if owner := cursor.fetchone():
            raise ValueError(f"{role} is, or may act as, {owner[0]}, who owns the tables")
        cursor.execute(
            "SELECT rolname FROM pg_roles WHERE (rolsuper OR rolcreaterole) AND pg_has_role(%s, oid, 'MEMBER')", [role]
        )
        if other := cursor.fetchone():
            raise ValueError(f"{role} may act as {other[0]}, which is a superuser or makes roles")


def check_privileges(role: str) -> None:
    """Raise ValueError where `role`, or a role that it may act as, can rewrite after all what was posted.

    Privileges also come from PUBLIC, from groups and from roles of PostgreSQL itself, which `privileges_for` leaves.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT privilege || ' on ' || name FROM unnest(%s::text[]) AS name,"
            " unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS privilege"
            " WHERE EXISTS (SELECT 1 FROM pg_roles r WHERE pg_has_role(%s, r.oid, 'MEMBER')"
            " AND has_table_privilege(r.oid, name, privilege)) LIMIT 1",
            [[*IMMUTABLE, *UPDATABLE], role],
        )
        found = cursor.fetchone()
        cursor.execute("SELECT current_setting('server_version_num')::integer >= 150000")
        is_15 = cursor.fetchone() == (True,)
        for what, condition in _OTHERS.items():
            if not found and (is_15 or what != _SINCE_15):
                cursor.execute(
                    f"SELECT %s FROM pg_roles r WHERE pg_has_role(%s, r.oid, 'MEMBER') AND {condition} LIMIT 1",  # noqa: S608
                    [what, role],
                )
                found = cursor.fetchone()
    if found:
        raise ValueError(f"{role} has, or may act as who has, {found[0]}: revoke it, by whichever way it is given")


def _columns_of(table: str) -> set[str]:
    with connection.cursor() as cursor:
        return {column.name for column in connection.introspection.get_table_description(cursor, table)}
