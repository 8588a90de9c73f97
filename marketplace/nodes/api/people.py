"""/api/v1/: what customers can rent, and what providers do with their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import generics, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from marketplace.accounts.permissions import HasScope
from marketplace.accounts.requester import organisation_of
from marketplace.accounts.scopes import Scope
from marketplace.foundation import clock
from marketplace.foundation.actors import actor_of
from marketplace.foundation.errors import NotFound
from marketplace.foundation.idempotency import idempotent
from marketplace.foundation.pagination import NewestFirst
from marketplace.nodes.api.messages import answer
from marketplace.nodes.api.serializers import (
    CheckSummary,
    MetricPoint,
    MetricsAsked,
    NewToken,
    OfferFilters,
    OfferSummary,
    OfferTermsSummary,
    OwnNode,
    ProviderProfile,
    Reasoned,
    ReputationSummary,
    TokenSummary,
)
from marketplace.nodes.errors import NoProvider, ProviderExists
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Check, Device, EnrolmentToken, Node, Offer, Provider
from marketplace.nodes.offering import availability, newest, offers, schedule
from marketplace.nodes.watching import metrics, reputation
from provider_agent.protocol import Schedule

_FILTERS = {
    "kind": "node__devices__kind",
    "model": "node__devices__model__icontains",
    "region": "region",
    "executor": "node__executor",
    "memory_mib_min": "node__devices__memory_mib__gte",
    "price_usd_micros_max": "price_usd_micros_per_device_hour__lte",
}


class NewestEnrolledFirst(NewestFirst):
    """Pages of nodes."""

    ordering = "-enrolled_at"


class NewestDemandedFirst(NewestFirst):
    """Pages of checks."""

    ordering = "-demanded_at"


def find_offers(given: Mapping[str, str]) -> QuerySet[Offer]:
    """What can be rented now of what is asked for, as OfferFilters has it. Raises ValidationError."""
    asked = OfferFilters(data=dict(given))
    asked.is_valid(raise_exception=True)
    wanted = {_FILTERS[name]: value for name, value in asked.validated_data.items() if name in _FILTERS}
    # One device must fit all that was asked of it; its offer is then listed once.
    fitting = Device.objects.rentable().filter(
        **{name.removeprefix("node__devices__"): value for name, value in wanted.items() if "__devices__" in name}
    )
    others = {name: value for name, value in wanted.items() if "__devices__" not in name}
    devices = Prefetch("node__devices", Device.objects.rentable(), to_attr="rentable_devices")
    rentable = Offer.objects.rentable().filter(node__in=fitting.values("node"), **others)
    there = rentable.exclude(node__in=schedule.closed_nodes())
    return there.select_related("node__provider").prefetch_related(devices)


class OffersView(generics.ListAPIView[Offer]):
    """What can be rented now: price, devices and their measured throughput, region, durations."""

    permission_classes = [HasScope(Scope.JOBS_READ)]
    serializer_class = OfferSummary
    queryset = Offer.objects.none()

    def get_queryset(self) -> QuerySet[Offer]:
        return find_offers(self.request.query_params.dict())

    @extend_schema(parameters=[OfferFilters])
    def get(self, request: Request, *args: object, **kwargs: object) -> Response:
        return super().get(request, *args, **kwargs)


class _OfProvider(APIView):
    """Rows of the provider whose organisation asks; there are no others."""

    permission_classes = [HasScope(Scope.PROVIDER_READ, write=Scope.PROVIDER_WRITE)]

    @property
    def provider(self) -> Provider:
        provider = Provider.objects.filter(organisation=organisation_of(self.request)).first()
        if provider is None:
            raise NoProvider
        return provider

    def find_node(self, node_id: UUID) -> Node:
        node = with_parts(Node.objects.filter(provider=self.provider, pk=node_id)).first()
        if node is None:
            raise NotFound
        return node


class ProviderView(_OfProvider):
    """The organisation's selling side."""

    @extend_schema(responses=ProviderProfile)
    def get(self, request: Request) -> Response:
        return Response(ProviderProfile(self.provider).data)

    @extend_schema(request=ProviderProfile, responses={201: ProviderProfile})
    @idempotent
    def post(self, request: Request) -> Response:
        asked = ProviderProfile(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            with transaction.atomic():
                provider = Provider.objects.create(organisation=organisation_of(request), **asked.validated_data)
        except IntegrityError as error:
            raise ProviderExists from error
        return Response(ProviderProfile(provider).data, status=status.HTTP_201_CREATED)


class EnrolmentTokensView(_OfProvider, generics.ListAPIView[EnrolmentToken]):
    """Tokens that enrol one node each."""

    serializer_class = TokenSummary
    queryset = EnrolmentToken.objects.none()

    def get_queryset(self) -> QuerySet[EnrolmentToken]:
        return self.provider.enrolment_tokens.all()

    @extend_schema(request=TokenSummary, responses={201: NewToken})
    @idempotent
    def post(self, request: Request) -> Response:
        asked = TokenSummary(data=request.data)
        asked.is_valid(raise_exception=True)
        token, plaintext = enrolment.issue_token(self.provider, actor=actor_of(request), **asked.validated_data)
        return Response({**TokenSummary(token).data, "token": plaintext}, status=status.HTTP_201_CREATED)


class NodesView(_OfProvider, generics.ListAPIView[Node]):
    """The provider's nodes."""

    serializer_class = OwnNode
    pagination_class = NewestEnrolledFirst
    queryset = Node.objects.none()

    def get_queryset(self) -> QuerySet[Node]:
        return with_parts(self.provider.nodes.all())


class NodeView(_OfProvider):
    """One node."""

    @extend_schema(responses=OwnNode)
    def get(self, request: Request, node_id: UUID) -> Response:
        return Response(OwnNode(self.find_node(node_id)).data)


class NodeChecksView(_OfProvider, generics.ListAPIView[Check]):
    """The checks of one node, each number measured beside the number needed."""

    serializer_class = CheckSummary
    pagination_class = NewestDemandedFirst
    queryset = Check.objects.none()

    def get_queryset(self) -> QuerySet[Check]:
        return self.find_node(self.kwargs["node_id"]).checks.all()


class NodeReputationView(_OfProvider):
    """What the marketplace expects of one node, and why."""

    @extend_schema(responses=ReputationSummary)
    def get(self, request: Request, node_id: UUID) -> Response:
        return Response(ReputationSummary(reputation.reputation_of(self.find_node(node_id))).data)


class NodeMetricsView(_OfProvider):
    """What one node measured of itself: hours, and minutes of the last six hours, oldest first."""

    @extend_schema(parameters=[MetricsAsked], responses=MetricPoint(many=True))
    def get(self, request: Request, node_id: UUID) -> Response:
        asked = MetricsAsked(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        since = asked.validated_data.get("since") or clock.now() - metrics.MINUTES_KEPT
        rows = list(metrics.read(self.find_node(node_id).pk, since=since))
        return Response(MetricPoint(rows, many=True).data)


class NodeScheduleView(_OfProvider):
    """When one node is there: weekly hours in its time zone, and windows in which it is not."""

    @extend_schema(operation_id="node_schedule", responses={200: Schedule})
    def get(self, request: Request, node_id: UUID) -> Response:
        return answer(schedule.of(self.find_node(node_id)))

    @extend_schema(operation_id="node_schedule_declare", request=Schedule, responses={200: Schedule})
    def put(self, request: Request, node_id: UUID) -> Response:
        """The whole schedule; nothing is placed that could not be done before the node closes."""
        wanted = Schedule.model_validate(request.data)
        node = self.find_node(node_id)
        with newest.change_by_person(node):
            return answer(schedule.declare(node, wanted))


class _NodeVerbView(_OfProvider):
    """Something done to one node; repeating it is harmless."""

    def _answer(self, node_id: UUID) -> Response:
        return Response(OwnNode(self.find_node(node_id)).data)


class DrainView(_NodeVerbView):
    """Let the node finish what it has, and give it nothing new."""

    @extend_schema(request=Reasoned, responses=OwnNode)
    def post(self, request: Request, node_id: UUID) -> Response:
        node = self.find_node(node_id)
        with newest.change_by_person(node):
            availability.drain(node, actor=actor_of(request), reason=_reason(request))
        return self._answer(node_id)


class ResumeView(_NodeVerbView):
    """Let the node take work again."""

    @extend_schema(request=Reasoned, responses=OwnNode)
    def post(self, request: Request, node_id: UUID) -> Response:
        node = self.find_node(node_id)
        with newest.change_by_person(node):
            availability.resume(node, actor=actor_of(request), reason=_reason(request))
        return self._answer(node_id)


class RetireView(_NodeVerbView):
    """Take the node out for good."""

    @extend_schema(request=None, responses=OwnNode)
    def post(self, request: Request, node_id: UUID) -> Response:
        enrolment.retire(self.find_node(node_id), actor=actor_of(request))
        return self._answer(node_id)


class NodeOfferView(_OfProvider):
    """The terms of one node."""

    @extend_schema(request=OfferTermsSummary, responses=OfferTermsSummary)
    def patch(self, request: Request, node_id: UUID) -> Response:
        asked: BaseSerializer[Offer] = OfferTermsSummary(data=request.data, partial=True)
        asked.is_valid(raise_exception=True)
        node = self.find_node(node_id)
        with newest.change_by_person(node):
            offer = offers.change(node, **asked.validated_data)
        return Response(OfferTermsSummary(offer).data)


def with_parts(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """With all that OwnNode shows, in a fixed number of queries."""
    return nodes.prefetch_related(
        "devices", "links_as_a__b", "links_as_b__a", Prefetch("offers", Offer.objects.filter(is_open=True))
    )


def _reason(request: Request) -> str:
    asked = Reasoned(data=request.data)
    asked.is_valid(raise_exception=True)
    return str(asked.validated_data["reason"])
