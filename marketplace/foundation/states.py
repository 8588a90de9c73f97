"""The only writer of a state: a compare-and-set in the database, with its event in the same transaction.

A hold is opened and captured by SQL functions (`billing/sql/`), which write the same event; the triggers of
`state_triggers` hold them, and everybody, to the same table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import models, transaction

from marketplace.foundation.errors import StateConflict
from marketplace.foundation.models import Event

M = TypeVar("M", bound=models.Model)


@dataclass(frozen=True)
class StateMachine:
    """Which state may follow which. A model names its own as STATE_MACHINE."""

    kind: str  # subject_kind of the events
    transitions: Mapping[str, frozenset[str]]

    @property
    def initial(self) -> str:
        """The state that a row begins in: the first of the table."""
        return next(iter(self.transitions))

    def sources(self, to: str) -> frozenset[str]:
        """Every state from which `to` may be reached in one move."""
        return frozenset(state for state, targets in self.transitions.items() if to in targets)


def machine(kind: str, transitions: Mapping[str, Iterable[str]]) -> StateMachine:
    """A StateMachine from plain lists."""
    return StateMachine(kind, {str(state): frozenset(map(str, targets)) for state, targets in transitions.items()})


def advance(
    instance: M,
    to: str,
    *,
    reason: str = "",
    actor: str = "system",
    data: Mapping[str, Any] | None = None,
    only_from: Iterable[str] | None = None,
    **fields: Any,
) -> M:
    """Move one row to state `to`, write `fields` and one event, all or nothing; exactly one of two racers wins.

    `reason` goes into the event, and into the row's own `reason` column where it has one.

    Raises StateConflict when the row is not in a state from which `to` may be reached (or not in `only_from`).
    """
    rules: StateMachine = instance.STATE_MACHINE  # type: ignore[attr-defined]
    to = str(to)
    if any(field.name == "reason" for field in instance._meta.concrete_fields):
        fields.setdefault("reason", str(reason))
    sources = rules.sources(to) if only_from is None else rules.sources(to) & set(map(str, only_from))
    manager = type(instance)._default_manager
    with transaction.atomic():
        # The state before is read under the row's lock, so that the event has the state that really was.
        before = manager.select_for_update().filter(pk=instance.pk).values_list("state", flat=True).first()
        moved = manager.filter(pk=instance.pk, state__in=sources).update(state=to, **fields) if before else 0
        if moved != 1:
            raise StateConflict(kind=rules.kind, id=str(instance.pk), to=to, state=before or "gone")
        Event.objects.create(
            subject_kind=rules.kind,
            subject_id=instance.pk,
            from_state=before or "",
            to_state=to,
            reason=str(reason),
            actor=actor,
            data=dict(data or {}),
        )
    instance.state = to  # type: ignore[attr-defined]
    for name, value in fields.items():
        setattr(instance, name, value)
    return instance


def advance_all(
    instances: Sequence[M],
    to: str,
    *,
    reason: str = "",
    actor: str = "system",
    data: Mapping[Any, Mapping[str, Any]] | None = None,
    only_from: Iterable[str] | None = None,
    **fields: Any,
) -> list[M]:
    """Move those rows of one model to `to` that may go there, each with its event, all in one; which those were.

    As `advance` for each, in five statements; `data` by the rows' ids. One that cannot move is left out: another
    process has moved it.
    """
    if not instances:
        return []
    rules: StateMachine = instances[0].STATE_MACHINE  # type: ignore[attr-defined]
    to, manager = str(to), type(instances[0])._default_manager
    sources = rules.sources(to) if only_from is None else rules.sources(to) & set(map(str, only_from))
    with transaction.atomic():
        mine = manager.select_for_update(of=("self",)).filter(pk__in=[one.pk for one in instances], state__in=sources)
        before = dict(mine.order_by("pk").values_list("pk", "state"))
        manager.filter(pk__in=list(before)).update(state=to, **fields)
        Event.objects.bulk_create(
            Event(
                subject_kind=rules.kind,
                subject_id=pk,
                from_state=state,
                to_state=to,
                reason=str(reason),
                actor=actor,
                data=dict((data or {}).get(pk, {})),
            )
            for pk, state in before.items()
        )
    moved = [one for one in instances if one.pk in before]
    for one in moved:
        one.state = to  # type: ignore[attr-defined]
        for name, value in fields.items():
            setattr(one, name, value)
    return moved


def record_birth(instance: models.Model, *, actor: str = "system", data: Mapping[str, Any] | None = None) -> Event:
    """The first event of a row that was just created, from the empty state to its initial one."""
    rules: StateMachine = instance.STATE_MACHINE  # type: ignore[attr-defined]
    return Event.objects.create(
        subject_kind=rules.kind,
        subject_id=instance.pk,
        from_state="",
        to_state=instance.state,  # type: ignore[attr-defined]
        actor=actor,
        data=dict(data or {}),
    )


def record_births(
    instances: Sequence[models.Model], *, actor: str = "system", data: Mapping[Any, Mapping[str, Any]] | None = None
) -> None:
    """As record_birth for each of one model's rows; `data` by their ids."""
    Event.objects.bulk_create(
        Event(
            subject_kind=one.STATE_MACHINE.kind,  # type: ignore[attr-defined]
            subject_id=one.pk,
            from_state="",
            to_state=one.state,  # type: ignore[attr-defined]
            actor=actor,
            data=dict((data or {}).get(one.pk, {})),
        )
        for one in instances
    )
