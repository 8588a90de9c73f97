"""Enrols this computer as a node with a token, and retires it."""

from __future__ import annotations

from pydantic import ValidationError

from provider_agent import protocol
from provider_agent.assembly import KEY_PREFIX_CHARACTERS, build_executor
from provider_agent.client import Client
from provider_agent.config import AgentConfig, AgentSettings, DataFolder, load_config, save_config
from provider_agent.devices.base import find_devices
from provider_agent.errors import AlreadyEnrolled, BadConfig, Refused
from provider_agent.facts import find_facts
from provider_agent.journal import Journal
from provider_agent.keys import FABRIC_KEY_NAME, RECEIPT_KEY_NAME, TRANSPORT_KEY_NAME, load_keys, make_keys
from provider_agent.protocol import EnrolRequest
from provider_agent.system.agent_lock import hold_agent_lock

NO_SUCH_ENDPOINT = frozenset({404, 405})


async def enrol(folder: DataFolder, settings: AgentSettings, *, server: str, token: str) -> AgentConfig:
    """Make the keys, prove that they are ours, spend the token, keep the answer. The token is never stored."""
    if folder.config.exists():
        raise AlreadyEnrolled
    folder.prepare()
    with hold_agent_lock(folder.lock):
        keys = make_keys(folder.root)
        devices = find_devices(settings, key_prefix=keys.transport_public_hex[:KEY_PREFIX_CHARACTERS])
        executor = build_executor(folder, settings)
        engine_version = await executor.check()
        proof = protocol.enrol_proof_bytes(token, keys.transport_public_hex, keys.receipt_address)
        try:
            request = EnrolRequest(
                protocol=protocol.PROTOCOL_VERSION,
                token=token,
                name=settings.name,
                transport_public_key=keys.transport_public_hex,
                receipt_address=keys.receipt_address,
                proof=protocol.sign_bytes(keys.transport, proof),
                receipt_proof=keys.sign_as_receipt_key(proof),
                facts=find_facts(
                    settings,
                    folder,
                    devices,
                    executor=executor,
                    engine_version=engine_version,
                    fabric_key=keys.fabric_public_hex,
                ),
                offer=settings.offer,
                fabric=settings.fabric,
                fabric_address=settings.fabric_address,
            )
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise BadConfig(f"The node cannot be enrolled as described: {wrong}") from error
        client = Client(api_url=server)
        try:
            answer = await client.enrol(request)
        finally:
            await client.close()
        config = AgentConfig(
            **settings.model_dump(),
            node_id=answer.node_id,
            server_public_key=answer.server_public_key,
            server=server,
            sync_url=answer.sync_url,
            api_url=answer.api_url,
        )
        save_config(folder, config)
        return config


async def retire(folder: DataFolder) -> AgentConfig:
    """Retire this node at the server, then set its configuration aside. The journal stays."""
    config = load_config(folder)
    with hold_agent_lock(folder.lock):
        journal = Journal(folder.journal)
        live = [entry for entry in journal.load_leases() if not entry.has_ended]
        journal.close()
        if live:
            raise BadConfig(f"{len(live)} lease(s) still run here. Drain the node first, then retire it.")
        client = Client(api_url=config.api_url, node_id=config.node_id, key=load_keys(folder.root).transport)
        try:
            await client.retire()
        except Refused as error:
            if error.status in NO_SUCH_ENDPOINT:
                raise BadConfig("This marketplace retires nodes in its portal only. Do it there.") from error
            raise
        finally:
            await client.close()
        folder.config.rename(folder.config.with_name("config.retired.json"))
        for name in (TRANSPORT_KEY_NAME, RECEIPT_KEY_NAME, FABRIC_KEY_NAME):
            (folder.root / name).rename(folder.root / f"{name}.retired")
        return config
