"""What can be wrong with a chain.

ChainError (a BillingError)
|-- ChainMisconfigured          500  SOUK_CHAINS cannot be used
|-- ChainUnknown                404  no such chain is configured
|-- SignerMissing               503  no key for what is to be signed
|-- KeyInUse                    409  the key's nonces are counted by the marketplace
|-- AssetCodeTaken              409  the code belongs to another asset
|-- TokenRefused                400  the token cannot be counted
|-- ContractRefused             409  the contract is not what we built, or not of this token
|-- ContractUnknown             404  this marketplace has no contract for the asset
|-- EndpointsUnreachable        503  too few endpoints answered
|-- EndpointsDisagree           503  their answers differ: none is trusted
|-- CallReverted                409  the contract refuses, by name
|-- FinalBlockGone              503  a final block is not there any more: a person has to look
|-- AuthorizationRefused        400  what the wallet signed cannot be used
|-- ReceiptUnclaimable         400  the contract would take the receipt, and the books could not
|-- ProofNotReady               409  no active root pays this yet
|-- NotChallenged               404  nobody challenged the lease, or it is decided
|-- RootNotProposed             409  another root waits, or none
|-- RoleNotProposed             409  no such role is proposed for the wallet
|-- RoleNotDue                  409  a proposed role waits its delay
|-- HoldNotClosing              409  no hold of the wallet is being closed for the job
|-- NonceRefused                409  the chain's count of a key's transactions cannot be taken for ours
|-- TriedTooOften               409  the call failed so often that a person has to look
`-- EventUnbooked               409  an event does not fit the books yet; it is tried again
"""

from __future__ import annotations

from billing.errors import BillingError


class ChainError(BillingError):
    message = "Something is wrong with the chain."
    code = "chain_error"
    status = 503


class ChainMisconfigured(ChainError):
    message = "SOUK_CHAINS cannot be used: {why}."
    code = "chain_misconfigured"
    status = 500


class ChainUnknown(ChainError):
    message = "This marketplace is not on the chain {chain_id}."
    code = "chain_unknown"
    status = 404


class SignerMissing(ChainError):
    message = "There is no key for {role}: set SOUK_CHAIN_KEY, or the key of this role alone."
    code = "signer_missing"


class KeyInUse(ChainError):
    message = (
        "The key of {address} sends the marketplace's own transactions, whose nonces are counted: deploy with another."
    )
    code = "key_in_use"
    status = 409


class AssetCodeTaken(ChainError):
    message = "The code {asset} belongs to another asset already; choose another one."
    code = "asset_code_taken"
    status = 409


class TokenRefused(ChainError):
    message = "The token {token} cannot be used: {why}."
    code = "token_refused"
    status = 400


class ContractRefused(ChainError):
    message = "The contract {address} cannot be used: {why}."
    code = "contract_refused"
    status = 409


class ContractUnknown(ChainError):
    message = "This marketplace has no escrow contract for {asset}."
    code = "contract_unknown"
    status = 404


class EndpointsUnreachable(ChainError):
    message = (
        "Of the {configured} endpoints of the chain {chain_id} {answered} answered and {needed} are needed: {why}."
    )
    code = "endpoints_unreachable"


class EndpointsDisagree(ChainError):
    message = "The endpoints of the chain {chain_id} disagree about {subject}: nothing that they say is used."
    code = "endpoints_disagree"


class CallReverted(ChainError):
    message = "The contract refuses {purpose}: {why}."
    code = "call_reverted"
    status = 409


class FinalBlockGone(ChainError):
    message = "Block {number} of the chain {chain_id} was final as {hash} and is not there any more."
    code = "final_block_gone"


class AuthorizationRefused(ChainError):
    message = "The hold that the wallet signed cannot be used: {why}."
    code = "authorization_refused"
    status = 400


class ReceiptUnclaimable(ChainError):
    message = "The receipt {seq} of lease {lease_id} is not sent to the contract: {why}."
    code = "receipt_unclaimable"
    status = 400


class ProofNotReady(ChainError):
    message = "The payout {payout_id} is in no root that is open for claims yet."
    code = "proof_not_ready"
    status = 409


class NotChallenged(ChainError):
    message = "The lease {lease_id} is not challenged: it never was, or it is decided; or the block is not final yet."
    code = "not_challenged"
    status = 404


class RootNotProposed(ChainError):
    message = "The root {root} is not the one that waits to be opened; that is {proposed}."
    code = "root_not_proposed"
    status = 409


class RoleNotProposed(ChainError):
    message = "The role {role} is not proposed for {wallet}: `souk chain propose-role` comes first."
    code = "role_not_proposed"
    status = 409


class RoleNotDue(ChainError):
    message = "The role {role} can be granted to {wallet} from {at} UTC on, by the chain's clock."
    code = "role_not_due"
    status = 409


class HoldNotClosing(ChainError):
    message = "No hold of {customer} for the job {job_id} is being closed in the contract."
    code = "hold_not_closing"
    status = 409


class NonceRefused(ChainError):
    message = "The nonce of {address} is not adopted: {why}."
    code = "nonce_refused"
    status = 409


class TriedTooOften(ChainError):
    message = "{purpose} was sent {tries} times for the same reason and failed each time: look at its transactions."
    code = "tried_too_often"
    status = 409


class EventUnbooked(ChainError):
    message = "The event {event} does not fit the books: {why}."
    code = "event_unbooked"
    status = 409
