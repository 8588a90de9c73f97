"""A state machine's table as triggers of its table: the database refuses every move that `advance` would refuse.

One line in a migration, after the table was made, with ("foundation", "0002_rules") among its dependencies:

    operations = [enforce_states("billing_hold", HOLD_MACHINE)]

The migration reads the machine as it is today. Who changes a machine adds a migration with the same line, which puts
the new edges in place of the old; a test that asks `edges_in_database` finds out who forgot.
"""

from __future__ import annotations

import re
from typing import Final

from django.db import connection, migrations

from marketplace.foundation.states import StateMachine

_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,47}")

# The conditions are the table, so that an allowed move costs a comparison and calls nothing.
_ENFORCE: Final = """
CREATE OR REPLACE TRIGGER {name}_states_begin BEFORE INSERT ON {table} FOR EACH ROW
    WHEN (NEW.state IS DISTINCT FROM '{initial}')
    EXECUTE FUNCTION foundation_refuse_move('{kind}');
CREATE OR REPLACE TRIGGER {name}_states_follow BEFORE UPDATE ON {table} FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state || '>' || NEW.state) <> ALL ('{{{edges}}}'::text[]))
    EXECUTE FUNCTION foundation_refuse_move('{kind}');
"""
_FORGET: Final = """
DROP TRIGGER IF EXISTS {name}_states_follow ON {table};
DROP TRIGGER IF EXISTS {name}_states_begin ON {table};
"""


def enforce_states(table: str, machine: StateMachine) -> migrations.RunSQL:
    """The migration step after which rows of `table` begin in the machine's first state and move along its edges."""
    edges = sorted(edges_of(machine))
    for word in (table, machine.kind, *machine.transitions, *(state for edge in edges for state in edge)):
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word!r} cannot stand in a trigger: lower case letters, digits and _ only")
    parts = {
        "table": table,
        "name": machine.kind,
        "kind": machine.kind,
        "initial": machine.initial,
        "edges": ",".join(f"{before}>{after}" for before, after in edges),
    }
    return migrations.RunSQL(_ENFORCE.format(**parts), _FORGET.format(**parts))


def edges_of(machine: StateMachine) -> set[tuple[str, str]]:
    """Every (before, after) that the machine allows."""
    return {(before, after) for before, targets in machine.transitions.items() for after in targets}


def edges_in_database(table: str, machine: StateMachine) -> set[tuple[str, str]]:
    """Every (before, after) that the table's trigger allows; empty where there is none."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname = %s",
            [table, f"{machine.kind}_states_follow"],
        )
        found = cursor.fetchone()
    pairs = re.findall(r"([a-z0-9_]+)>([a-z0-9_]+)", found[0].split("'{", 1)[1]) if found else []
    return set(pairs)
