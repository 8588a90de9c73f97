"""Who is who: three messages of JSON, each side signing what the other just drew, before anything is announced.

    1. agent    its node key and a challenge                     (the Hello)
    2. gateway  its own challenge, signed with its key           (the Proof of a gateway whose key the agent pinned)
    3. agent    all of that, signed with its node key            (the Answer)

Both signatures cover the address that the agent dialled, both keys and both challenges: neither can be used again, at
another gateway, or for another node. What they cannot exclude is somebody in the middle who passes on everything and
reads along or changes what follows: that takes TLS (wss://), whose certificate the agent checks.
"""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field, ValidationError

from provider_agent.protocol.bounds import SmallCount
from provider_agent.protocol.message import Account
from provider_agent.protocol.signing import sign_bytes, verify_bytes
from provider_agent.protocol.tunnel.frames import VERSION, Broken

CHALLENGE_BYTES: Final = 32
HELLO_BYTES_MAX: Final = 4096
HELLO_SECONDS_MAX: Final = 10.0
KEY_PATTERN: Final = r"^[0-9a-f]{64}$"


class Hello(Account):
    """The agent's first message. `boot`: the agent's process, so that its connections are known to be one agent's."""

    version: SmallCount = VERSION
    node_key: str = Field(pattern=KEY_PATTERN)
    boot: str = Field(pattern=r"^[0-9a-f]{32}$")
    url: str = Field(max_length=300)  # that it dialled
    challenge: str = Field(pattern=KEY_PATTERN)


class Proof(Account):
    """The gateway's answer."""

    version: SmallCount = VERSION
    challenge: str = Field(pattern=KEY_PATTERN)
    signature: str = Field(max_length=200)


class Answer(Account):
    """The agent's answer to that."""

    signature: str = Field(max_length=200)


def say_hello(key: Ed25519PrivateKey, *, boot: str, url: str) -> Hello:
    """A fresh one."""
    public = key.public_key().public_bytes_raw().hex()
    return Hello(node_key=public, boot=boot, url=url, challenge=secrets.token_hex(CHALLENGE_BYTES))


def prove(key: Ed25519PrivateKey, hello: Hello) -> Proof:
    """The gateway's signature over both challenges."""
    public, challenge = key.public_key().public_bytes_raw().hex(), secrets.token_hex(CHALLENGE_BYTES)
    return Proof(challenge=challenge, signature=sign_bytes(key, _transcript("gateway", hello, public, challenge)))


def is_proven(hello: Hello, proof: Proof, gateway_key: str) -> bool:
    """Whether the answering side holds the key that the marketplace named."""
    return verify_bytes(gateway_key, proof.signature, _transcript("gateway", hello, gateway_key, proof.challenge))


def answer(key: Ed25519PrivateKey, hello: Hello, proof: Proof, gateway_key: str) -> Answer:
    """The node's signature over the same, for this gateway alone."""
    return Answer(signature=sign_bytes(key, _transcript("node", hello, gateway_key, proof.challenge)))


def is_answered(hello: Hello, proof: Proof, gateway_key: str, answered: Answer) -> bool:
    """Whether the dialling side holds the node key that it named."""
    message = _transcript("node", hello, gateway_key, proof.challenge)
    return verify_bytes(hello.node_key, answered.signature, message)


def read(kind: type[Any], data: object) -> Any:
    """One of the three messages. Raises Broken."""
    if not isinstance(data, str) or len(data) > HELLO_BYTES_MAX:
        raise Broken("a hello that is not a short text")
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise Broken(f"a hello that cannot be read: {error.errors()[0]['msg']}") from error


def _transcript(who: str, hello: Hello, gateway_key: str, challenge: str) -> bytes:
    fields = [hello.version, hello.url, gateway_key, hello.node_key, hello.boot, hello.challenge, challenge]
    return f"souk-tunnel-{who}-v1\n".encode() + json.dumps(fields, separators=(",", ":")).encode()
