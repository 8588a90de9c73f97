"""What the list of jobs is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.db.models import QuerySet
from django.http import QueryDict

from jobs.models import Job
from jobs.spec.kinds.registry import KINDS
from jobs.states import JOB_ENDS, JobState
from marketplace.accounts.models import Organisation
from marketplace.foundation.errors import BadRequest

UNFINISHED: Final = "unfinished"
STATES: Final = {"": "any state", UNFINISHED: "not ended", **{state.value: state.value for state in JobState}}
KIND_NAMES: Final = {"": "any kind", **{kind: kind for kind in KINDS}}
NAME_CHARACTERS_MAX: Final = 64
_UNKNOWN: Final = "This list can be asked for state, kind, name and cursor, and for nothing else."


@dataclass(frozen=True)
class Question:
    """Empty where all are wanted; `name` is a part of it."""

    state: str = ""
    kind: str = ""
    name: str = ""

    @property
    def is_any(self) -> bool:
        """Whether nothing is left out."""
        return not (self.state or self.kind or self.name)

    def rows(self, organisation: Organisation) -> QuerySet[Job]:
        """The organisation's jobs that are asked for."""
        found: QuerySet[Job] = Job.objects.of(organisation)
        if self.state == UNFINISHED:
            found = found.exclude(state__in=JOB_ENDS)
        elif self.state:
            found = found.filter(state=self.state)
        if self.kind:
            found = found.filter(kind=self.kind)
        return found.filter(name__icontains=self.name) if self.name else found


def read_question(given: QueryDict) -> Question:
    """Raises BadRequest, in words of our own: an address may come from somebody else."""
    asked = given.dict()
    asked.pop("cursor", None)
    if not asked.keys() <= {"state", "kind", "name"}:
        raise BadRequest(_UNKNOWN)
    question = Question(**{name: str(value).strip() for name, value in asked.items()})
    if question.state not in STATES:
        raise BadRequest(f"?state= has to be one of {', '.join(filter(None, STATES))}.")
    if question.kind not in KIND_NAMES:
        raise BadRequest(f"?kind= has to be one of {', '.join(filter(None, KIND_NAMES))}.")
    if len(question.name) > NAME_CHARACTERS_MAX:
        raise BadRequest(f"?name= has at most {NAME_CHARACTERS_MAX} characters, as a job's name has.")
    return question
