"""An endpoint's life beside its job's: opened with it, given new versions, closed when it ends.

open_endpoint   the name is taken, version 1 waits for replicas
deploy          another version, which takes over by the rules of its rollout
roll_back       the version before it, again
close_endpoint  the name is free again
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from jobs.endpoints.errors import (
    DeployMismatch,
    EndpointClosed,
    EndpointNameTaken,
    EndpointNotFound,
    ModelNotReady,
    NothingToRollBack,
)
from jobs.errors import InputNotReady
from jobs.models import Artifact, Endpoint, EndpointVersion, Job, Replica
from jobs.results import find_result
from jobs.spec import Spec, canonical, from_wire, serve_of
from jobs.states import JOB_ENDS, VERSION_ROLLED_BACK, VersionState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from provider_agent.protocol import Fault

SPECS_MAX = 4096  # read ones that a process remembers
FAILED_STARTS_MAX = 3  # by the customer's own doing, before an endpoint that never answered is given up

# What a node was chosen and priced by, and what money was set aside for: a version may not change it.
QUOTED = ("kind", "resources", "budget", "payment", "network", "lent", "secrets")

_specs: OrderedDict[UUID, Spec] = OrderedDict()  # by version, the last used at the end


def open_endpoint(job: Job, spec: Spec) -> Endpoint:
    """The endpoint of a new serving job, with its first version. In the transaction that makes the job.

    Raises EndpointNameTaken.
    """
    model = name_of(spec)
    try:
        with transaction.atomic():
            endpoint = Endpoint.objects.create(
                job=job,
                organisation=job.organisation,
                model=model,
                desired=max(serve_of(spec).replicas.min, 1),  # it stays awake for a while, whoever asks it
                desired_why="It was launched a moment ago.",
            )
    except IntegrityError as error:
        if "one_open_endpoint_a_name" not in str(error):
            raise
        raise EndpointNameTaken(model=model) from error
    _add_version(endpoint, spec, job.input_artifact)
    return endpoint


def deploy(
    endpoint_id: UUID, spec: Spec, *, organisation: Organisation, files: Artifact | None, actor: str
) -> EndpointVersion:
    """A new version of an open endpoint, under the terms of the first; one that is the newest already is returned.

    A rollback that was requested and not done yet is cancelled.

    Raises EndpointNotFound, EndpointClosed, DeployMismatch, ModelNotReady, InputNotReady.
    """
    with transaction.atomic():
        endpoint = _locked(endpoint_id, organisation)
        newest = endpoint.versions.latest("number")
        changed = _quoted_changes(newest.spec, canonical(spec))
        if changed or name_of(spec) != endpoint.model:
            raise DeployMismatch(fields=", ".join(changed) or "the model's name")
        weights = weights_of(organisation, spec) or files
        if weights is not None and not Artifact.objects.stays_complete(weights):
            raise InputNotReady(artifact_id=str(weights.pk))
        Endpoint.objects.filter(pk=endpoint.pk).update(is_rollback_requested=False)  # of another version
        is_current = newest.state in {VersionState.STARTING, VersionState.LIVE}
        if is_current and canonical(spec) == newest.spec and newest.input_artifact == weights:
            return newest
        for older in endpoint.versions.filter(state=VersionState.STARTING, share=0):
            advance(older, VersionState.RETIRED, reason="superseded", actor=actor, ended_at=clock.now())
        return _add_version(endpoint, spec, weights, actor=actor)


def roll_back(endpoint_id: UUID, *, organisation: Organisation) -> Endpoint:
    """Request the version before the newest: the next tick does it, at once while that one has replicas.

    Raises EndpointNotFound, EndpointClosed, NothingToRollBack.
    """
    with transaction.atomic():
        endpoint = _locked(endpoint_id, organisation)
        current = endpoint.versions.filter(state__in=[VersionState.STARTING, VersionState.LIVE])
        if current.count() < 2:
            raise NothingToRollBack()
        endpoint.is_rollback_requested = True
        endpoint.save(update_fields=["is_rollback_requested"])
        return endpoint


def close_endpoint(job: Job) -> None:
    """Free the name of a job that ends; its versions are over. In the transaction that ends the job."""
    endpoint = Endpoint.objects.filter(job=job).first()
    if endpoint is None:
        return
    for version in endpoint.versions.filter(state__in=[VersionState.STARTING, VersionState.LIVE]):
        advance(version, VersionState.RETIRED, reason="closed", share=0, ended_at=clock.now())
    Endpoint.objects.filter(pk=endpoint.pk).update(is_open=False, desired=0, desired_why="Its job has ended.")


def weights_of(organisation: Organisation, spec: Spec) -> Artifact | None:
    """The output of the training that is to be served; None where the weights come from elsewhere.

    By a name it is the job of that name that completed last. Raises ModelNotReady.
    """
    given = serve_of(spec).model.job
    if given is None:
        return None
    found = find_result(organisation, given)
    if found is None:
        raise ModelNotReady(job_id=given)
    return found


def last_version(job: Job) -> EndpointVersion | None:
    """What was deployed last and not rolled back; None of a job that serves nothing."""
    versions = EndpointVersion.objects.filter(endpoint__job=job).exclude(state__in=VERSION_ROLLED_BACK)
    return versions.order_by("-number").first()


def is_hopeless(job: Job) -> bool:
    """Whether the newest starts of an endpoint all broke by the customer's doing, and no replica was ever ready."""
    replicas = Replica.objects.filter(endpoint__job=job)
    if replicas.filter(ready_at__isnull=False).exists():
        return False
    faults = list(job.attempts.order_by("-number").values_list("fault", flat=True)[:FAILED_STARTS_MAX])
    return len(faults) == FAILED_STARTS_MAX and set(faults) == {Fault.CUSTOMER.value}


def name_of(spec: Spec) -> str:
    """What callers write as `model`."""
    return serve_of(spec).served_as or spec.name


def spec_of(version: EndpointVersion) -> Spec:
    """A version's spec, which never changes: read once, since each sync of a gateway and each tick needs all."""
    spec = _specs.pop(version.pk, None) or from_wire(version.spec)
    _specs[version.pk] = spec
    if len(_specs) > SPECS_MAX:
        _specs.popitem(last=False)
    return spec


def _locked(endpoint_id: UUID, organisation: Organisation) -> Endpoint:
    """An open endpoint of the organisation under its row lock."""
    found = Endpoint.objects.select_for_update(of=("self",)).select_related("job")
    endpoint = found.filter(pk=endpoint_id, organisation=organisation).first()
    if endpoint is None:
        raise EndpointNotFound()
    if not endpoint.is_open or endpoint.job.state in JOB_ENDS:
        raise EndpointClosed()
    return endpoint


def _add_version(endpoint: Endpoint, spec: Spec, weights: Artifact | None, *, actor: str = "system") -> EndpointVersion:
    newest = endpoint.versions.order_by("-number").first()
    version = EndpointVersion.objects.create(
        endpoint=endpoint,
        number=newest.number + 1 if newest else 1,
        spec=canonical(spec),
        input_artifact=weights,
        share=0 if newest else 100,
    )
    record_birth(version, actor=actor, data={"endpoint": str(endpoint.pk), "number": version.number})
    return version


def _quoted_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [name for name in QUOTED if before.get(name) != after.get(name)]
