"""Which models a user may chat with, and the name of each at the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.conf import settings

from jobs.endpoints.keys import callable_endpoints
from jobs.endpoints.publish import short_name
from jobs.endpoints.versions import spec_of
from jobs.models import Endpoint, EndpointVersion, Replica
from jobs.serving.observe import predict_start
from jobs.spec import serve_of
from jobs.states import ReplicaState, VersionState
from marketplace.accounts.models import Organisation
from marketplace.foundation import clock
from marketplace.portal.amounts import price_text

MODELS_MAX: Final = 200
SOUK_CHAT: Final = "Souk Chat"
MILLION: Final = 1_000_000


@dataclass(frozen=True)
class ChatModel:
    """A model that can be talked to now. Prices are micro-dollars for a million tokens."""

    endpoint_id: UUID
    name: str  # at the gateway, for this organisation
    label: str
    is_own: bool
    is_default: bool
    input_usd_micros: int
    output_usd_micros: int
    tokens_max: int

    @property
    def price(self) -> str:
        """For people."""
        read, written = price_text(self.input_usd_micros), price_text(self.output_usd_micros)
        return f"A million tokens cost {read} to read and {written} to write."

    def cost_usd_micros(self, input_tokens: int, output_tokens: int) -> int:
        """As the gateway counts it: rounded down."""
        return (input_tokens * self.input_usd_micros + output_tokens * self.output_usd_micros) // MILLION


def models_for(organisation: Organisation, endpoint_ids: Sequence[UUID] | None = None) -> list[ChatModel]:
    """The marketplace's own first, then the organisation's, then those of others; at most MODELS_MAX."""
    found = callable_endpoints(organisation).select_related("organisation").order_by("model", "id")
    if endpoint_ids is not None:
        found = found.filter(pk__in=endpoint_ids)
    endpoints = list(found[:MODELS_MAX])
    current = EndpointVersion.objects.filter(
        endpoint__in=endpoints, state__in=[VersionState.STARTING, VersionState.LIVE]
    ).order_by("number")
    versions: dict[UUID, EndpointVersion] = {}
    for version in current:
        # The gateway uses the oldest version that has a share, and the oldest if none has.
        if version.endpoint_id not in versions or (version.share and not versions[version.endpoint_id].share):
            versions[version.endpoint_id] = version
    models = [_model(each, versions[each.pk], organisation) for each in endpoints if each.pk in versions]
    chatting = [model for model in models if model is not None]
    return sorted(chatting, key=lambda model: (not model.is_default, not model.is_own, model.label))


def model_of(endpoint_id: UUID | None, organisation: Organisation) -> ChatModel | None:
    """One of them; None where it is not there any more, or not theirs to call."""
    return next(iter(models_for(organisation, [endpoint_id])), None) if endpoint_id else None


def seconds_to_wake(endpoint_id: UUID) -> int | None:
    """About how long a first answer waits for a replica; None where one is ready."""
    if Replica.objects.filter(endpoint_id=endpoint_id, state=ReplicaState.READY).exists():
        return None
    version = EndpointVersion.objects.filter(
        endpoint_id=endpoint_id, state__in=[VersionState.STARTING, VersionState.LIVE]
    ).last()
    if version is None:
        return None
    return max(1, round(predict_start(version.endpoint, version, clock.now()).quantile(0.5)))


def _model(endpoint: Endpoint, version: EndpointVersion, organisation: Organisation) -> ChatModel | None:
    serve = serve_of(spec_of(version))
    if serve.engine == "embed":
        return None
    is_own = endpoint.organisation_id == organisation.pk
    public_name = f"{short_name(endpoint.organisation)}/{endpoint.model}"
    is_default = serve.is_public and public_name == settings.SOUK_CHAT_MODEL
    name = endpoint.model if is_own else public_name
    return ChatModel(
        endpoint_id=endpoint.pk,
        name=name,
        label=SOUK_CHAT if is_default else name,
        is_own=is_own,
        is_default=is_default,
        input_usd_micros=serve.prices.input_usd_micros or 0,
        output_usd_micros=serve.prices.output_usd_micros or 0,
        tokens_max=serve.limits.max_tokens,
    )
