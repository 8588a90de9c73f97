"""From a request to typed values, and back: pydantic at the edge, errors by name, lists by cursor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from django.db import models
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.errors import BadSpec, InputMissing, JobNotFound, UnknownInput
from jobs.models import Artifact, ArtifactKind, Job
from jobs.spec import Spec, SpecErrors, from_wire
from jobs.wire import Wire
from marketplace.accounts.models import Organisation
from marketplace.accounts.requester import organisation_of
from marketplace.foundation.pagination import NewestFirst

M = TypeVar("M", bound=models.Model)
B = TypeVar("B", bound=BaseModel)


def read_body(request: Request, model: type[B]) -> B:
    """The body as `model`; pydantic's error becomes a 400 that names the fields."""
    return model.model_validate(request.data)


def read_query(request: Request, model: type[B]) -> B:
    """The query parameters as `model`."""
    return model.model_validate(request.query_params.dict())


def read_spec(body: dict[str, Any]) -> Spec:
    """A checked spec; raises BadSpec with every mistake in it."""
    try:
        return from_wire(body)
    except SpecErrors as errors:
        raise BadSpec(str(errors), **errors.details) from errors


def find_job(request: Request, job_id: UUID) -> Job:
    """A job of the asking organisation; raises JobNotFound for anybody else's."""
    job = Job.objects.of(organisation_of(request)).filter(pk=job_id).first()
    if job is None:
        raise JobNotFound()
    return job


def find_input(organisation: Organisation, spec: Spec, artifact_id: UUID | None) -> Artifact | None:
    """The uploaded files of a spec that names some; raises InputMissing, and UnknownInput for anybody else's."""
    if artifact_id is None:
        if spec.files:
            raise InputMissing()
        return None
    inputs = Artifact.objects.filter(organisation=organisation, kind=ArtifactKind.INPUT)
    found = inputs.filter(pk=artifact_id).first()
    if found is None:
        raise UnknownInput(artifact_id=str(artifact_id))
    return found


def answer(view: Wire, status: int = 200) -> Response:
    """A wire type as a response."""
    return Response(view.model_dump(mode="json"), status=status)


def answer_page(
    request: Request, view: APIView, rows: models.QuerySet[M], show: Callable[[Sequence[M]], Sequence[Wire]]
) -> Response:
    """One page of `rows`, newest first."""
    paginator = NewestFirst()
    page = paginator.paginate_queryset(rows, request, view=view) or []
    return paginator.get_paginated_response([shown.model_dump(mode="json") for shown in show(page)])
