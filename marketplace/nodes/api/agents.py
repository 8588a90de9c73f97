"""/api/agent/v1/: enrolment, measurements, device checks, the provider's terms, retirement. Leases are in `jobs`."""

from __future__ import annotations

import os
from functools import cache
from uuid import UUID

from django.conf import settings
from django.http import HttpResponse
from rest_framework import status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from marketplace.foundation import clock, signing
from marketplace.foundation.throttles import AnonThrottle
from marketplace.nodes.agent_auth import AgentView, node_of, signed_ms_of
from marketplace.nodes.api.messages import answer, read
from marketplace.nodes.device_checks import checking
from marketplace.nodes.fabrics import link_reports
from marketplace.nodes.inventory import devices
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import Node
from marketplace.nodes.offering import availability, newest, offers, schedule
from provider_agent.protocol import (
    CheckCommit,
    CheckRecall,
    CheckReveal,
    DrainRequest,
    EnrolRequest,
    EnrolResponse,
    LinkReport,
    MeasurementRequest,
    NodeStanding,
    PriceRequest,
    ResumeRequest,
    Schedule,
)

SAMPLE_BYTES = 1024 * 1024


class EnrolThrottle(AnonThrottle):
    """Enrolments from one address: many nodes may share it."""

    scope = "enrol"
    rate = "120/min"


class EnrolView(APIView):
    """A token and two proven keys for a node."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = [EnrolThrottle]

    def post(self, request: Request) -> Response:
        node = enrolment.enrol(read(request, EnrolRequest))
        response = EnrolResponse(
            node_id=node.pk,
            server_public_key=signing.server_public_key_hex(),
            sync_url=settings.SOUK_SYNC_URL,
            api_url=settings.SOUK_API_URL,
            server_time=clock.now(),
        )
        return answer(response, status=status.HTTP_201_CREATED)


class MeasurementsView(AgentView):
    """What the probe measured on this node."""

    def post(self, request: Request) -> Response:
        devices.record_measurements(node_of(request), read(request, MeasurementRequest))
        return Response(status=status.HTTP_204_NO_CONTENT)


class CheckView(AgentView):
    """One step of a check of this node; see provider_agent/protocol/device_checks.py."""

    def post(self, request: Request, check_id: UUID, step: str) -> Response:
        received_at, node = clock.now(), node_of(request)
        if step == "begin":
            return answer(checking.begin(node, check_id))
        if step == "commit":
            return answer(checking.commit(node, check_id, read(request, CheckCommit), received_at=received_at))
        if step == "reveal":
            checking.reveal(node, check_id, read(request, CheckReveal))
            return Response(status=status.HTTP_204_NO_CONTENT)
        if step == "filled":
            return answer(checking.begin_recall(node, check_id))
        return answer(checking.recall(node, check_id, read(request, CheckRecall), received_at=received_at))


class LinkView(AgentView):
    """What this node measured of its link to another node of its fabric; see provider_agent/protocol/fabric.py."""

    def post(self, request: Request, probe_id: UUID) -> Response:
        link_reports.report(node_of(request), probe_id, read(request, LinkReport))
        return Response(status=status.HTTP_204_NO_CONTENT)


class SampleView(AgentView):
    """Bytes that do not compress: a node measures its connection to the marketplace once at each start."""

    def get(self, request: Request) -> HttpResponse:
        node_of(request)
        return HttpResponse(_sample(), content_type="application/octet-stream")


class StandingView(AgentView):
    """How this node stands in the market."""

    def get(self, request: Request) -> Response:
        return _standing(node_of(request))


class DrainView(AgentView):
    """This node finishes what it has and wants nothing new."""

    def post(self, request: Request) -> Response:
        node = node_of(request)
        asked = read(request, DrainRequest)
        with newest.change_by_node(node, signed_ms=signed_ms_of(request)):
            availability.drain(node, actor=f"node:{node.pk}", reason=asked.reason)
        return _standing(node)


class ResumeView(AgentView):
    """This node takes new work again."""

    def post(self, request: Request) -> Response:
        node = node_of(request)
        read(request, ResumeRequest)
        with newest.change_by_node(node, signed_ms=signed_ms_of(request)):
            availability.resume(node, actor=f"node:{node.pk}")
        return _standing(node)


class PriceView(AgentView):
    """This node's price from the next lease on; no other offer changes."""

    def post(self, request: Request) -> Response:
        node = node_of(request)
        asked = read(request, PriceRequest)
        with newest.change_by_node(node, signed_ms=signed_ms_of(request)):
            offers.change(node, price_usd_micros_per_device_hour=asked.price_usd_micros_per_device_hour)
        return _standing(node)


class ScheduleView(AgentView):
    """When this node is there."""

    def get(self, request: Request) -> Response:
        return answer(schedule.of(Node.objects.get(pk=node_of(request).pk)))

    def post(self, request: Request) -> Response:
        node = node_of(request)
        wanted = read(request, Schedule)
        with newest.change_by_node(node, signed_ms=signed_ms_of(request)):
            return answer(schedule.declare(node, wanted))


class RetireView(AgentView):
    """This node leaves."""

    def post(self, request: Request) -> Response:
        node = node_of(request)
        enrolment.retire(node, actor=f"node:{node.pk}")
        return Response(status=status.HTTP_204_NO_CONTENT)


@cache
def _sample() -> bytes:
    return os.urandom(SAMPLE_BYTES)


def _standing(node: Node) -> Response:
    fresh = Node.objects.get(pk=node.pk)  # who signed may be some seconds old
    offer = fresh.offers.filter(is_open=True).first()
    standing = NodeStanding(
        node_state=fresh.state,
        drain_reason=fresh.drain_reason,
        price_usd_micros_per_device_hour=offer.price_usd_micros_per_device_hour if offer else None,
    )
    return answer(standing)
