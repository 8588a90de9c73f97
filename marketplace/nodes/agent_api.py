"""/api/agent/v1/: enrol, measurements, retire. What concerns leases is in the jobs room."""

from __future__ import annotations

from django.conf import settings
from rest_framework import status
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from marketplace.foundation import clock, signing
from marketplace.foundation.throttles import AnonThrottle
from marketplace.nodes import enrolment, inventory
from marketplace.nodes.agent_auth import AgentView, node_of
from marketplace.nodes.agent_messages import answer, read
from provider_agent.protocol import EnrolRequest, EnrolResponse, MeasurementRequest


class EnrolThrottle(AnonThrottle):
    """Enrolments of one address: a rack may stand behind it."""

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
        inventory.record_measurements(node_of(request), read(request, MeasurementRequest))
        return Response(status=status.HTTP_204_NO_CONTENT)


class RetireView(AgentView):
    """This node leaves."""

    def post(self, request: Request) -> Response:
        node = node_of(request)
        enrolment.retire(node, actor=f"node:{node.pk}")
        return Response(status=status.HTTP_204_NO_CONTENT)
