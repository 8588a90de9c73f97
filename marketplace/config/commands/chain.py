"""`souk chain`: put the escrow contract on a chain, check it, and see how the marketplace stands with its chains."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marketplace.config.commands import chain_appointments, chain_roles
from marketplace.config.commands.chain_setup import Data, Json, contract_named, fail, set_up

if TYPE_CHECKING:
    from billing.chain.coins import SignerCoins
    from billing.models import EscrowContract

app = typer.Typer(help="The operator's view of chains: deploy and verify the escrow, register tokens, show the state.")

ChainId = Annotated[int, typer.Option("--chain-id", help="Which of SOUK_CHAINS.")]
ASKED = "SOUK_CHAIN_DEPLOYER_KEY"
app.add_typer(chain_roles.app)
app.add_typer(chain_appointments.app)


@app.command("deploy")
def deploy_contract(  # noqa: PLR0917  Typer reads the options from the parameters
    chain_id: ChainId,
    token: Annotated[str, typer.Option(help="Address of the ERC-20 that it holds, for ever.")],
    code: Annotated[str, typer.Option(help="What the token is called here, such as USDC.")],
    fee_recipient: Annotated[str, typer.Option(help="Wallet that the platform's fee goes to.")],
    fee_bps: Annotated[int, typer.Option(min=0, max=2000, help="The fee in basis points.")] = 1000,
    root_daily_cap: Annotated[str, typer.Option(help="Payouts promised in a day at most, in tokens.")] = "100000",
    slash_cap: Annotated[str, typer.Option(help="Stake taken for one offence, and in a day, at most.")] = "10000",
    close_seconds: Annotated[
        int, typer.Option(min=0, help="From a job's end until the rest of its hold goes back. 0: at once.")
    ] = 3600,
    settler: Annotated[str, typer.Option(help="Default: the address of the settler's key.")] = "",
    publisher: Annotated[str, typer.Option(help="Default: the address of the publisher's key.")] = "",
    arbiter: Annotated[str, typer.Option(help="Who decides disputes; a multisig. Default: the deployer.")] = "",
    data: Data = None,
) -> None:
    """Deploy GpuEscrow with the key in SOUK_CHAIN_DEPLOYER_KEY, verify what is there, and register it.

    The deployer is its first admin: hand the role over to a multisig afterwards (two steps, 48 hours).

    Example: souk chain deploy --chain-id 8453 --code USDC --token 0x8335... --fee-recipient 0xA1b2...
    """
    set_up(data)
    from billing.chain.contract import deploy, registry
    from billing.chain.keys import Role, SigningKey, key_for
    from billing.chain.wallets import checksummed
    from billing.errors import BillingError
    from billing.money import parse_amount
    from provider_agent.protocol import ethereum

    secret = os.environ.get(ASKED, "")
    if not secret:
        fail(f"Set {ASKED} to the private key that deploys and has coins for gas.")
    try:
        key = SigningKey(ethereum.address_of(secret), secret)
        asset = registry.register_token(code, chain_id, token)
        slash = parse_amount(slash_cap, scale=asset.scale)
        terms = deploy.Terms(
            token=asset.contract,
            admin=key.address,
            fee_recipient=checksummed(fee_recipient),
            fee_bps=fee_bps,
            root_daily_cap=parse_amount(root_daily_cap, scale=asset.scale),
            slash_cap_per_offence=slash,
            slash_daily_cap=slash,
            close_seconds=close_seconds,
        )
        judge = checksummed(arbiter) if arbiter else key.address
        roles = {
            "SETTLER": settler or key_for(Role.SETTLER).address,
            "PUBLISHER": publisher or key_for(Role.PUBLISHER).address,
            "ARBITER": judge,
            "SLASHER": judge,
            "PAUSER": judge,
        }
        receipt = deploy.deploy_escrow(chain_id, key, terms, roles)
        contract = registry.register_escrow(asset, receipt.contract, deployed_block=receipt.block_number)
    except (BillingError, ValueError) as error:
        fail(str(error))
    typer.echo(f"GpuEscrow for {asset.code} is {contract.address} in block {receipt.block_number}.")
    typer.echo("Its code, terms and roles are those that were asked for.")


@app.command("register")
def register_contract(  # noqa: PLR0917  Typer reads the options from the parameters
    chain_id: ChainId,
    token: Annotated[str, typer.Option(help="Address of the ERC-20.")],
    code: Annotated[str, typer.Option(help="What the token is called here, such as USDC.")],
    escrow: Annotated[str, typer.Option(help="Address of its GpuEscrow.")],
    block: Annotated[int, typer.Option(min=0, help="The block that it was deployed in.")],
    data: Data = None,
) -> None:
    """Use a GpuEscrow that is there already, if its code is that of this version.

    Example: souk chain register --chain-id 8453 --code USDC --token 0x8335... --escrow 0x5F1c... --block 120
    """
    set_up(data)
    from billing.chain.contract import registry
    from billing.errors import BillingError

    try:
        contract = registry.register_escrow(
            registry.register_token(code, chain_id, token), escrow, deployed_block=block
        )
    except BillingError as error:
        fail(str(error))
    typer.echo(f"{code} is held by {contract.address} on the chain {contract.chain_id}.")


@app.command("verify")
def verify_contracts(as_json: Json = False, data: Data = None) -> None:
    """Compare every registered contract's code with this version's build; exit status 1 if anything differs.

    Example: souk chain verify
    """
    set_up(data)
    from billing.chain.contract import deploy
    from billing.errors import BillingError
    from billing.models import EscrowContract

    found: dict[str, list[str]] = {}
    for contract in EscrowContract.objects.select_related("asset"):
        try:
            found[f"{contract.asset.code} {contract.chain_id} {contract.address}"] = deploy.verify_escrow(
                contract.chain_id, contract.address
            )
        except BillingError as error:
            found[f"{contract.asset.code} {contract.chain_id} {contract.address}"] = [str(error)]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    for name, problems in found.items() if not as_json else []:
        typer.echo(f"{name}: {'; '.join(problems) or 'is the build of this version'}")
    if not found and not as_json:
        typer.echo("This marketplace has no escrow contract.")
    raise typer.Exit(1 if any(found.values()) else 0)


@app.command("status")
def show_status(as_json: Json = False, data: Data = None) -> None:
    """How far each chain is followed, what the contracts owe and what the ledger has, what waits to be sent.

    Example: souk chain status --json
    """
    set_up(data)
    from billing.models import EscrowContract

    rows = [_status_of(contract) for contract in EscrowContract.objects.select_related("asset")]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        typer.echo(f"{row['asset']} on chain {row['chain_id']}: {row['contract']}")
        for name in ("head", "final", "scanned", "events_waiting", "transactions_waiting", "ledger", "owed", "held"):
            typer.echo(f"  {name:20} {row[name]}")
        for signer in row["signers"]:
            roles = ", ".join(signer["roles"]) or "no role now"
            lasts = f"{signer['coins']} base units last for {signer['transactions']} transactions"
            typer.echo(f"  {signer['address']} ({roles}): {lasts}{', TOO FEW' if signer['is_low'] else ''}")
        if row["error"]:
            typer.echo(f"  {row['error']}", err=True)
    if not rows:
        typer.echo("This marketplace has no escrow contract.")


@app.command("follow")
def follow_now(data: Data = None) -> None:
    """Read every chain once now, book what is final and send what is due; the scheduled task does the same.

    Example: souk chain follow
    """
    set_up(data)
    from billing.chain_following.chains import follow_chains

    typer.echo(f"{follow_chains()} events booked.")


@app.command("retry-root")
def retry_root(
    code: Annotated[str, typer.Argument(help="The token's code.")],
    data: Data = None,
) -> None:
    """After a payout root failed or was vetoed, and you know why: publish the next one.

    Example: souk chain retry-root USDC
    """
    set_up(data)
    from billing.chain import payout_roots

    root = payout_roots.retry(contract_named(code))
    typer.echo(f"The next root is {root.root}." if root else "There is nothing to publish.")


def _person() -> str:
    """The user who runs this, for the event log; it is not authenticated."""
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"


@app.command("adopt-nonce")
def adopt_nonce(
    chain_id: ChainId,
    address: Annotated[str, typer.Argument(help="The key's address, as the alert names it.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    data: Data = None,
) -> None:
    """After a key of ours was used elsewhere, by you: go on with the chain's count of its transactions.

    Was it not you, then the key is stolen: give its role to another key instead. Nothing is booked; what those
    transactions cost shows as a difference of the key's coins in the next reconciliation.

    Example: souk chain adopt-nonce --chain-id 8453 0xA1b2...
    """
    set_up(data)
    from billing.chain.transactions import adopting
    from billing.chain.wallets import checksummed
    from billing.errors import BillingError

    try:
        found = adopting.standing_of(chain_id, checksummed(address))
        if not as_json:
            typer.echo(f"{found.address} on chain {chain_id}: {found.ours} by our count, {found.mined} mined.")
        if not yes:
            if as_json:
                fail("--json asks nothing: add --yes.")
            typer.confirm("Were the others sent by you, and shall the marketplace go on after them?", abort=True)
        actor = f"souk chain adopt-nonce by {_person()}"
        signer = adopting.adopt_nonce(chain_id, found.address, expected=found.mined, actor=actor)
    except (BillingError, ValueError) as error:
        fail(str(error))
    if as_json:
        answer = {"chain_id": chain_id, "address": found.address, "was": found.ours, "is": signer.next_nonce}
        typer.echo(json.dumps(answer, indent=2))
    else:
        typer.echo(f"The next transaction takes the nonce {signer.next_nonce}.")


@app.command("dev")
def run_development_chain(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 8545,
    journal: Annotated[Path | None, typer.Option(help="File to keep it in. Default: it forgets.")] = None,
) -> None:
    """Run a development chain of its own until Ctrl-C: one block a transaction, on loopback only.

    Example: souk chain dev --port 8545 --journal ./chain.jsonl
    """
    try:
        from billing.chain.devchain.chain import CHAIN_ID, DEVELOPMENT_KEYS, DevChain
        from billing.chain.devchain.rpc import serve

        server = serve(DevChain(journal), port=port)
    except ModuleNotFoundError as missing:
        fail(f"`souk chain dev` needs {missing.name}: pip install 'gpusouk[chain,devchain]'")
    except OSError as error:
        fail(f"Port {port} cannot be used: {error}")
    typer.echo(f"http://127.0.0.1:{port}  chain id {CHAIN_ID}; keys that everybody knows, with coins:")
    for key in DEVELOPMENT_KEYS:
        typer.echo(f"  {key}")
    try:
        server.serve_forever(poll_interval=1)
    except KeyboardInterrupt:
        typer.echo("stopped")


def _status_of(contract: EscrowContract) -> dict[str, Any]:
    from billing.account_kinds import AccountKind
    from billing.books.balances import balance
    from billing.chain import coins
    from billing.chain.reading import builds
    from billing.chain.reading.client import client_of
    from billing.errors import BillingError
    from billing.models import ChainEvent, ChainTransaction
    from billing.states.chain import TransactionState as State

    live = [State.PLANNED, State.NONCED, State.SIGNED, State.BROADCAST, State.MINED, State.REORGED]
    row: dict[str, Any] = {
        "asset": contract.asset.code,
        "chain_id": contract.chain_id,
        "contract": contract.address,
        "token": contract.asset.contract,
        "scanned": contract.scanned_block,
        "events_waiting": ChainEvent.objects.filter(
            contract=contract.address, processed_at=None, block__state="final"
        ).count(),
        "transactions_waiting": ChainTransaction.objects.filter(chain_id=contract.chain_id, state__in=live).count(),
        "ledger": str(-balance(None, AccountKind.CHAIN_ESCROW, asset_id=contract.asset_id)),
        **dict.fromkeys(["head", "final", "owed", "held", "error"], ""),
        "signers": [],
    }
    try:
        client = client_of(contract.chain_id)
        at = max(contract.scanned_block, contract.deployed_block)
        abi = builds.load(builds.ESCROW).abi
        row |= {
            "head": client.head(),
            "final": client.final(),
            "owed": str(client.read(contract.address, abi, "totalLiabilities", at=at)),
            "held": str(client.read(contract.asset.contract, builds.ERC20_ABI, "balanceOf", contract.address, at=at)),
            "signers": [_signer_as_json(one) for one in coins.signers(contract.chain_id)],
        }
    except BillingError as error:
        row["error"] = str(error)
    return row


def _signer_as_json(one: SignerCoins) -> dict[str, Any]:
    from django.conf import settings

    return {
        "address": one.address,
        "roles": list(one.roles),
        "coins": str(one.coins),
        "transactions": one.transactions,
        "is_low": one.transactions < settings.SOUK_CHAIN_TRANSACTIONS_MIN,
    }


if __name__ == "__main__":
    app()
