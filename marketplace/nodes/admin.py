"""Supply, for operators: what is there, and drain, quarantine, release, retire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import admin, messages
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe

from marketplace.foundation import clock
from marketplace.foundation.admin import PlainAdmin, ReadOnlyAdmin
from marketplace.foundation.errors import SoukError
from marketplace.nodes.device_checks import demands
from marketplace.nodes.fabrics import links
from marketplace.nodes.joining import enrolment
from marketplace.nodes.models import AgentRelease, Check, Device, EnrolmentToken, FabricLink, Node, Offer, Provider
from marketplace.nodes.offering import availability, offers
from marketplace.nodes.releases.progress import progress_of
from marketplace.nodes.watching import charts, metrics, reputation
from provider_agent.protocol import install_command

OPERATOR_REASON = "operator"

if TYPE_CHECKING:
    InlineBase = admin.TabularInline[Any, Any]
else:
    InlineBase = admin.TabularInline


class ReadOnlyInline(InlineBase):
    """Rows that agents write."""

    extra = 0
    can_delete = False
    show_change_link = True

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class Devices(ReadOnlyInline):
    model = Device
    fields = ["index", "kind", "model", "memory_mib", "flops_per_second", "is_healthy", "fault"]


class Offers(ReadOnlyInline):
    model = Offer
    fields = ["price_usd_micros_per_device_hour", "seconds_min", "seconds_max", "region", "available_until", "is_open"]


@admin.register(Provider)
class ProviderAdmin(PlainAdmin):
    list_display = ["display_name", "organisation", "contact_email", "created_at"]
    search_fields = ["display_name", "organisation__name"]
    autocomplete_fields = ["organisation"]
    actions = ["issue_token"]

    @admin.action(description="Add a node: issue a token, show the line to run", permissions=["change"])
    def issue_token(self, request: HttpRequest, queryset: QuerySet[Provider]) -> None:
        for provider in queryset:
            token, plaintext = enrolment.issue_token(provider, actor=_actor(request))
            line = install_command(settings.SOUK_API_URL, plaintext)
            text = (
                f"For {provider}, shown once: run this on the node before {token.expires_at:%Y-%m-%d %H:%M} UTC: {line}"
            )
            self.message_user(request, text, messages.WARNING)


@admin.register(EnrolmentToken)
class EnrolmentTokenAdmin(ReadOnlyAdmin):
    list_display = ["prefix", "provider", "note", "created_by", "created_at", "expires_at", "used_at", "node"]
    list_select_related = ["provider", "node"]
    search_fields = ["=prefix", "provider__display_name"]
    exclude = ["token_hash"]


@admin.register(Node)
class NodeAdmin(ReadOnlyAdmin):
    list_display = [
        "name",
        "provider",
        "state",
        "executor",
        "region",
        "agent_version",
        "wanted_version",
        "last_seen_at",
        "failures",
        "successes",
        "ghosts_killed",
    ]
    list_filter = ["state", "executor", "region", "agent_version", "update_mode"]
    list_select_related = ["provider"]
    search_fields = ["name", "=id", "provider__display_name"]
    readonly_fields = ["reputation", "fabric_links", "charts"]
    inlines = [Devices, Offers]

    actions = ["drain", "resume", "quarantine", "release", "retire", "check_now", "probe_now"]

    @admin.display(description="Last six hours")
    def charts(self, node: Node) -> SafeString:
        return charts.draw_all(list(metrics.read(node.pk, since=clock.now() - metrics.MINUTES_KEPT)))

    @admin.display(description="Links to its fabric's other nodes")
    def fabric_links(self, node: Node) -> SafeString:
        """A line each: whom, how far, how fast, or what is wrong."""
        lines = ((peer.name, _link_words(link)) for peer, link in links.links_of(node))
        return format_html_join(mark_safe("<br>"), "{}: {}", lines) or mark_safe("-")

    @admin.display(description="Reputation")
    def reputation(self, node: Node) -> str:
        """The score, then each part: value x weight, and what it comes from."""
        found = reputation.reputation_of(node)
        parts = "; ".join(f"{one.name} {one.value:.2f} x {one.weight:g} ({one.because})" for one in found.parts)
        return f"{found.score:.2f} = {parts}"

    @admin.action(description="Check its devices as soon as it is idle", permissions=["operate"])
    def check_now(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        count = demands.make_due(queryset)
        self.message_user(request, f"{count} will be checked as soon as they are idle.")

    @admin.action(description="Probe its links as soon as both ends are idle", permissions=["operate"])
    def probe_now(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        self.message_user(request, f"{links.make_due(queryset)} links will be probed as soon as both ends are idle.")

    @admin.action(description="Drain", permissions=["operate"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        self._each(request, queryset, lambda node, actor: availability.drain(node, actor=actor, reason=OPERATOR_REASON))

    @admin.action(description="Resume", permissions=["operate"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        self._each(request, queryset, lambda node, actor: availability.resume(node, actor=actor))

    @admin.action(description="Quarantine: stop everything on it", permissions=["operate"])
    def quarantine(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        def verb(node: Node, actor: str) -> Node:
            return availability.quarantine(node, actor=actor, reason=OPERATOR_REASON)

        self._each(request, queryset, verb)

    @admin.action(description="Release from quarantine", permissions=["operate"])
    def release(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        self._each(request, queryset, lambda node, actor: availability.release(node, actor=actor))

    @admin.action(description="Retire for good", permissions=["operate"])
    def retire(self, request: HttpRequest, queryset: QuerySet[Node]) -> None:
        self._each(request, queryset, lambda node, actor: enrolment.retire(node, actor=actor))

    def _each(self, request: HttpRequest, nodes: QuerySet[Node], verb: Callable[[Node, str], object]) -> None:
        for node in nodes:
            try:
                verb(node, _actor(request))
            except SoukError as error:
                self.message_user(request, f"{node.name}: {error.message}", messages.ERROR)
            else:
                self.message_user(request, f"{node.name} is {Node.objects.get(pk=node.pk).state}.")


@admin.register(AgentRelease)
class AgentReleaseAdmin(ReadOnlyAdmin):
    """How far each release of the agent is; the operator changes it with `manage.py rollout`."""

    list_display = ["version", "state", "share", "stage_at", "reason", "rollback_from", "published_at"]
    list_filter = ["state"]
    readonly_fields = ["progress"]

    @admin.display(description="Progress")
    def progress(self, release: AgentRelease) -> str:
        found = progress_of(release)
        return (
            f"{found.updated} of {found.nodes} nodes have it, {found.settled} for long enough, "
            f"{found.waiting} are updating, {found.rolled_back} rolled it back"
        )


@admin.register(Check)
class CheckAdmin(ReadOnlyAdmin):
    list_display = ["node", "state", "reason", "is_enforced", "demanded_at", "begun_at", "ended_at"]
    list_filter = ["state", "reason", "is_enforced"]
    list_select_related = ["node"]
    search_fields = ["=id", "=node__id", "node__name"]
    exclude = ["seed", "roots", "recalls"]


@admin.register(Device)
class DeviceAdmin(ReadOnlyAdmin):
    list_display = ["model", "kind", "node", "index", "memory_mib", "is_healthy", "fault"]
    list_filter = ["kind", "is_healthy", "model"]
    list_select_related = ["node"]
    search_fields = ["=uuid", "model", "node__name"]


@admin.register(Offer)
class OfferAdmin(ReadOnlyAdmin):
    list_display = ["node", "price_usd_micros_per_device_hour", "region", "is_open", "available_until", "created_at"]
    list_filter = ["is_open", "region"]
    list_select_related = ["node"]
    search_fields = ["node__name"]
    actions = ["withdraw"]

    @admin.action(description="Withdraw", permissions=["operate"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Offer]) -> None:
        for offer in queryset.filter(is_open=True):
            offers.withdraw(offer.node)
        self.message_user(request, "Withdrawn.")


def _link_words(link: FabricLink) -> str:
    if link.condition != "good":
        return f"{link.condition}: {link.why}" if link.why else link.condition
    bandwidth = (link.bandwidth_bytes_per_second or 0) * 8 / 1e9
    return f"{(link.round_trip_us or 0) / 1000:.3g} ms, {bandwidth:.3g} Gbit/s, {link.measured_at:%Y-%m-%d %H:%M} UTC"


def _actor(request: HttpRequest) -> str:
    return f"operator:{request.user.pk}"
