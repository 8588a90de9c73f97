"""What the routes of supply take and give. A provider sees its nodes; a customer sees offers, never keys."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from marketplace.foundation.serializers import MomentField, StrictModelSerializer, StrictSerializer
from marketplace.nodes.fabrics.links import links_of
from marketplace.nodes.inventory.gpu_versions import compute_capability_of, format_version, version_of
from marketplace.nodes.models import Check, Device, EnrolmentToken, Metric, Node, Offer, Provider
from provider_agent.protocol import DeviceKind

_TERMS = ["price_usd_micros_per_device_hour", "seconds_min", "seconds_max", "region", "available_until"]


class ProviderProfile(StrictModelSerializer[Provider]):
    class Meta:
        model = Provider
        fields = ["id", "display_name", "contact_email", "created_at"]
        read_only_fields = ["id", "created_at"]


class TokenSummary(StrictModelSerializer[EnrolmentToken]):
    class Meta:
        model = EnrolmentToken
        fields = ["id", "prefix", "note", "created_by", "created_at", "expires_at", "used_at", "node"]
        read_only_fields = ["id", "prefix", "created_by", "created_at", "expires_at", "used_at", "node"]


class NewToken(TokenSummary):
    """With its text, which is shown once."""

    token = serializers.CharField(read_only=True)

    class Meta(TokenSummary.Meta):
        fields = [*TokenSummary.Meta.fields, "token"]


class DeviceSummary(StrictModelSerializer[Device]):
    """A device as customers see it: its uuid is the provider's."""

    flops_per_second = serializers.DictField(child=serializers.FloatField(), read_only=True)
    compute_capability = serializers.SerializerMethodField(help_text="Such as 9.0; empty where it is not known.")
    cuda = serializers.SerializerMethodField(help_text="The newest that its driver supports, such as 12.4.")

    class Meta:
        model = Device
        fields = [
            *["id", "kind", "model", "memory_mib", "flops_per_second", "memory_bytes_per_second"],
            *["compute_capability", "cuda"],
        ]
        read_only_fields = fields

    def get_compute_capability(self, device: Device) -> str:
        return format_version(compute_capability_of(device.model, device.details.get("compute_capability")))

    def get_cuda(self, device: Device) -> str:
        return format_version(version_of(device.details.get("cuda")))


class OwnDevice(DeviceSummary):
    """A device as its provider sees it: with what its agent reported, and what a check showed (in float32)."""

    claimed_flops_per_second = serializers.DictField(child=serializers.FloatField(), read_only=True)

    class Meta(DeviceSummary.Meta):
        fields = [
            *[*DeviceSummary.Meta.fields, "uuid", "index", "is_healthy"],
            *["claimed_flops_per_second", "shown_flops_per_second", "fault", "details"],
        ]
        read_only_fields = fields


class OfferSummary(StrictModelSerializer[Offer]):
    """A rentable offer with what is behind it."""

    node_id = serializers.UUIDField(read_only=True)
    node_name = serializers.CharField(source="node.name", read_only=True)
    provider = serializers.CharField(source="node.provider.display_name", read_only=True)
    executor = serializers.CharField(source="node.executor", read_only=True)
    cpu_count = serializers.IntegerField(source="node.cpu_count", read_only=True)
    memory_mib = serializers.IntegerField(source="node.memory_mib", read_only=True)
    isolation = serializers.CharField(source="node.isolation", read_only=True)
    allows_strangers = serializers.BooleanField(
        source="node.allows_strangers",
        read_only=True,
        help_text="Where isolation is none: jobs of other organisations may run there too, if they ask for none.",
    )
    egress = serializers.SerializerMethodField()
    lent = serializers.SerializerMethodField()
    devices = DeviceSummary(source="node.rentable_devices", many=True, read_only=True)

    class Meta:
        model = Offer
        fields = [
            *["id", "node_id", "node_name", "provider", "executor", "isolation", "allows_strangers"],
            *["egress", "lent", "cpu_count", "memory_mib", *_TERMS, "devices"],
        ]
        read_only_fields = fields

    def get_egress(self, offer: Offer) -> bool:
        return bool(offer.node.facts.get("egress"))

    def get_lent(self, offer: Offer) -> list[str]:
        return list(offer.node.facts.get("lent") or [])


class OfferTermsSummary(StrictModelSerializer[Offer]):
    """The terms of an offer; changing one publishes a new offer and leaves running leases at their price."""

    class Meta:
        model = Offer
        fields = ["id", *_TERMS, "created_at"]
        read_only_fields = ["id", "created_at"]
        extra_kwargs = {
            "price_usd_micros_per_device_hour": {"min_value": 1, "max_value": 1_000_000_000},
            "seconds_max": {"min_value": 1},
        }

    def validate_region(self, region: str) -> str:
        return str(serializers.RegexField(r"^[a-z0-9-]{1,32}$").run_validation(region))


class LinkSummary(StrictSerializer):
    """What lies between the node and another one of its fabric, as both measured it."""

    node_id = serializers.UUIDField(help_text="The other node.")
    node_name = serializers.CharField()
    condition = serializers.ChoiceField(choices=["good", "failed", "unmeasured"])
    round_trip_us = serializers.IntegerField(allow_null=True, help_text="Median, in microseconds.")
    bandwidth_bytes_per_second = serializers.IntegerField(allow_null=True, help_text="Of the slower direction.")
    measured_at = serializers.DateTimeField(allow_null=True)
    next_probe_at = serializers.DateTimeField(allow_null=True)
    why = serializers.CharField(allow_blank=True, help_text="What is wrong, and between whom.")


class OwnNode(StrictModelSerializer[Node]):
    """A node as its provider sees it."""

    devices = OwnDevice(many=True, read_only=True)
    offer = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = [
            *["id", "name", "state", "executor", "agent_version", "region", "fabric", "fabric_address"],
            *[
                "memory_mib",
                "cpu_count",
                "last_seen_at",
                "measured_at",
                "drain_requested_at",
                "drain_reason",
                "enrolled_at",
            ],
            *["failures", "successes", "receipt_address", "devices", "offer", "links"],
            *["verified_at", "suspended_at", "checks_passed", "checks_failed", "checks_failed_in_row", "next_check_at"],
        ]
        read_only_fields = fields

    @extend_schema_field(OfferTermsSummary(allow_null=True))
    def get_offer(self, node: Node) -> dict[str, Any] | None:
        offer = next((offer for offer in node.offers.all() if offer.is_open), None)
        return dict(OfferTermsSummary(offer).data) if offer else None

    @extend_schema_field(LinkSummary(many=True))
    def get_links(self, node: Node) -> list[dict[str, Any]]:
        names = ("condition", "round_trip_us", "bandwidth_bytes_per_second", "measured_at", "next_probe_at", "why")
        rows = [
            {"node_id": peer.pk, "node_name": peer.name, **{name: getattr(link, name) for name in names}}
            for peer, link in links_of(node)
        ]
        return list(LinkSummary(rows, many=True).data)


class FindingSummary(StrictSerializer):
    """One thing that a check looked at: the number measured and the number needed."""

    device = serializers.CharField()
    what = serializers.ChoiceField(choices=["products", "work_seconds", "memory_blocks", "recall_seconds", "identity"])
    measured = serializers.FloatField()
    needed = serializers.FloatField()
    is_passed = serializers.BooleanField()
    message = serializers.CharField(allow_blank=True)


class CheckSummary(StrictModelSerializer[Check]):
    """A check as the node's provider sees it."""

    findings = FindingSummary(many=True, read_only=True)

    class Meta:
        model = Check
        fields = ["id", "state", "reason", "is_enforced", "demanded_at", "begun_at", "ended_at", "findings"]
        read_only_fields = fields


class ReputationPart(StrictSerializer):
    name = serializers.CharField()
    value = serializers.FloatField(help_text="0 to 1")
    weight = serializers.FloatField()
    because = serializers.CharField()


class ReputationSummary(StrictSerializer):
    """What can be expected of a node, with its parts."""

    score = serializers.FloatField(help_text="0 to 1")
    parts = ReputationPart(many=True)


class Reasoned(StrictSerializer):
    """Why; it stands in the node's history."""

    reason = serializers.CharField(max_length=64, default="", allow_blank=True)


class OfferFilters(StrictSerializer):
    """What may be asked of the list of offers."""

    kind = serializers.ChoiceField(choices=[kind.value for kind in DeviceKind], required=False)
    model = serializers.CharField(max_length=120, required=False, help_text="A part of the device's model name.")
    region = serializers.CharField(max_length=32, required=False)
    executor = serializers.ChoiceField(choices=["process", "docker"], required=False)
    memory_mib_min = serializers.IntegerField(min_value=0, required=False, help_text="Of one device.")
    price_usd_micros_max = serializers.IntegerField(min_value=0, required=False, help_text="Per device and hour.")
    cursor = serializers.CharField(required=False)
    page_size = serializers.IntegerField(required=False, min_value=1)


class MetricsAsked(StrictSerializer):
    """From when on."""

    since = MomentField(required=False, help_text="Six hours ago, unless given; a month at most is kept.")


class MetricPoint(StrictModelSerializer[Metric]):
    """A minute or an hour: of each series its mean and its highest. A device's are "UUID/series"."""

    values = serializers.DictField(child=serializers.ListField(child=serializers.FloatField()), read_only=True)

    class Meta:
        model = Metric
        fields = ["at", "seconds", "values"]
        read_only_fields = fields
