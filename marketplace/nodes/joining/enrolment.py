"""How a node joins (once, with a token and proof of both its keys) and how it leaves."""

from __future__ import annotations

import ipaddress
import secrets
from datetime import timedelta
from typing import Final

from django.db import IntegrityError, transaction

from marketplace.foundation import clock
from marketplace.foundation.states import advance, record_birth
from marketplace.foundation.tokens import hash_token
from marketplace.nodes import agent_auth
from marketplace.nodes.errors import (
    AlreadyEnrolled,
    BadFacts,
    EnrolmentRefused,
    ProofRefused,
    UnsupportedProtocol,
)
from marketplace.nodes.inventory import devices
from marketplace.nodes.models import EnrolmentToken, Node, Provider
from marketplace.nodes.offering import offers
from marketplace.nodes.states import NodeState
from provider_agent.protocol import (
    PROTOCOL_VERSIONS_SPOKEN,
    EnrolRequest,
    enrol_proof_bytes,
    ethereum,
    verify_bytes,
)

TOKEN_SECONDS: Final = 3600
TOKEN_BYTES: Final = 32
TOKEN_PREFIX: Final = "soukn_"  # noqa: S105 - a prefix, and no secret
PREFIX_CHARACTERS: Final = 12


def issue_token(provider: Provider, *, actor: str, note: str = "") -> tuple[EnrolmentToken, str]:
    """A token that enrols one node within the hour, and its text, which is kept nowhere."""
    plaintext = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    token = EnrolmentToken.objects.create(
        provider=provider,
        prefix=plaintext[:PREFIX_CHARACTERS],
        token_hash=hash_token(plaintext),
        note=note,
        created_by=actor,
        expires_at=clock.now() + timedelta(seconds=TOKEN_SECONDS),
    )
    return token, plaintext


def enrol(request: EnrolRequest) -> Node:
    """The node of these keys, in the token's provider's hands; of two that race with one token exactly one enrols.

    The same agent may ask again with its used token, when the answer was lost, and gets the same node.
    """
    if request.protocol not in PROTOCOL_VERSIONS_SPOKEN:
        raise UnsupportedProtocol(protocol=request.protocol, spoken=list(PROTOCOL_VERSIONS_SPOKEN))
    receipt_address = _verify_proofs(request)
    _check_fabric(request)
    try:
        with transaction.atomic():
            if _use_token(request.token) != 1:
                return _enrolled_before(request, receipt_address)
            token = EnrolmentToken.objects.select_related("provider").get(token_hash=hash_token(request.token))
            return _create_node(token, request, receipt_address)
    except IntegrityError as error:
        # The token's use was rolled back with the rest: it can be tried again when the conflict is solved.
        raise AlreadyEnrolled(what="key or GPU") from error


def retire(node: Node, *, actor: str = "system") -> Node:
    """The node leaves for good: nothing it signs counts any more, its devices may be enrolled elsewhere.

    It loses what it is running; a provider who wants to finish that first drains the node, then retires it.
    """
    with transaction.atomic():
        if node.state != NodeState.RETIRED:
            advance(node, NodeState.RETIRED, actor=actor)
        offers.withdraw(node)
        node.devices.update(is_healthy=False, is_claimed=False)
    agent_auth.forget(node.pk)
    return node


def _verify_proofs(request: EnrolRequest) -> str:
    """Both keys signed this very enrolment; the receipt key's address in its checksummed spelling."""
    proven = enrol_proof_bytes(request.token, request.transport_public_key, request.receipt_address)
    if not verify_bytes(request.transport_public_key, request.proof, proven):
        raise ProofRefused(key="transport")
    try:
        signer = ethereum.recover_message(proven, request.receipt_proof)
    except ValueError as error:
        raise ProofRefused(key="receipt") from error
    if signer.lower() != request.receipt_address.lower():
        raise ProofRefused(key="receipt")
    return signer


def _check_fabric(request: EnrolRequest) -> None:
    if not request.fabric.isprintable():
        raise BadFacts(problem="a fabric's label that cannot be printed")
    if not request.fabric_address:
        if request.fabric:
            raise BadFacts(problem="a fabric without this node's address in it")
        return
    try:
        address = ipaddress.ip_address(request.fabric_address)
    except ValueError:
        raise BadFacts(problem=f"fabric_address {request.fabric_address!r} is not an IP address") from None
    if address.is_unspecified or address.is_multicast:
        raise BadFacts(problem=f"fabric_address {address} is not the address of one node")
    if getattr(address, "scope_id", None):
        raise BadFacts(problem=f"fabric_address {address} has a meaning on that node only")


def _use_token(plaintext: str) -> int:
    now = clock.now()
    unused = EnrolmentToken.objects.filter(token_hash=hash_token(plaintext), used_at=None, expires_at__gt=now)
    return unused.update(used_at=now)


def _enrolled_before(request: EnrolRequest, receipt_address: str) -> Node:
    node = Node.objects.filter(
        token__token_hash=hash_token(request.token),
        transport_public_key=request.transport_public_key,
        receipt_address=receipt_address,
    ).first()
    if node is None:
        raise EnrolmentRefused
    return node


def _create_node(token: EnrolmentToken, request: EnrolRequest, receipt_address: str) -> Node:
    facts = request.facts
    node = Node.objects.create(
        provider=token.provider,
        name=request.name,
        transport_public_key=request.transport_public_key,
        receipt_address=receipt_address,
        executor=facts.executor,
        allows_strangers=facts.allows_strangers,
        agent_version=facts.agent_version,
        protocol=request.protocol,
        facts=devices.facts_to_keep(facts),
        region=request.offer.region,
        fabric=request.fabric,
        fabric_address=request.fabric_address,
        fabric_key=facts.fabric_key,
        memory_mib=facts.memory_mib,
        cpu_count=facts.cpu_count,
    )
    devices.add_devices(node, facts.devices)
    offers.publish(node, request.offer)
    record_birth(node, actor=f"token:{token.prefix}", data={"token_id": token.pk, "provider_id": token.provider_id})
    token.node = node
    token.save(update_fields=["node"])
    return node
