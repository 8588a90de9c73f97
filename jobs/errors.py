"""What can go wrong between a job file and its bill.

SoukError
`-- JobsError
    |-- BadSpec                422  the job file has mistakes; details: errors, count
    |   `-- UnknownAsset       422  no such asset pays here; details: errors, assets
    |-- JobFileTooLarge        413
    |-- UnknownKind            409  a job of a kind that this marketplace does not know; details: known
    |-- ImageNotAllowed        422  an image of a registry that is not allowed here; details: registry, allowed
    |-- NoFit                  409  nothing fits; details: exclusions, fixes
    |-- QuoteNotFound          404
    |-- QuoteExpired           409
    |-- QuoteMismatch          409  the spec is not the one that was quoted
    |-- QuoteForged            409  the stored quote does not bear the marketplace's signature
    |-- QuoteUsed              409  another job was submitted with it
    |-- TooManyWaiting         422  of one organisation; details: jobs_max
    |-- NotEnoughMoney         402  details: missing_usd_micros
    |-- NoEscrowContract       400  the token has no escrow contract here
    |-- AuthorizationMissing 400  escrow mode without what the wallet signs; details: job_id, contract, amount
    |-- AuthorizationUnexpected 400  a signed hold for a job that is not paid so
    |-- WalletShort          402  details: missing_units
    |-- HoldCannotGrow       409  a hold in the contract is what was signed
    |-- PriceUnsettled       409  internal, never an answer: a job's token price has to be known or confirmed first
    |-- PriceNotAsked        409  the job waits for no confirmation of a price
    |-- PriceMoved           409  the price to confirm is another one; details: asked_usd_micros_per_token
    |-- NoWallet             409  the node's provider has no wallet that the contract knows; placed again elsewhere
    |-- AssetTooCoarse         409  the token's base unit is worth too much to count this price in
    |-- DelegationRefused      400  a wallet's delegation to a receipt key that is not valid
    |-- ExportTooLarge         409  too much for one file; details: receipts_max
    |-- CapTooLow              409  resuming needs a higher cap than before
    |-- JobEnded               409
    |-- JobNotPaused           409
    |-- JobNotEnded            409
    |-- JobNotFound            404
    |-- SecretsGone            409  a job's secrets are erased when it ends
    |-- DeviceTaken            409  another placement was faster; placed again with a fresh snapshot
    |-- NoGangPort             409  the nodes' gangs have all ports; placed again when one has ended
    |-- LeaseNotFound          404
    |-- StaleFence             409  what an agent sent for an older assignment is refused
    |-- InputNotReady          409  the job's files are not uploaded completely
    |-- ResultNotReady         409  an earlier job whose result is wanted left none, or it is gone; details: folder, job
    |-- VolumeNotFound         404  details: name, nearest
    |-- VolumeVersionNotFound  404  details: name, version, versions
    |-- VolumeVersionInUse     409  the newest version goes with its volume alone; details: name, version
    |-- VolumeGone             409  the files of this version were deleted, as nobody paid for them; details: name
    |-- VolumesFull            422  of one organisation, or versions of one volume; details: volumes_max, versions_max
    |-- VolumeEmpty            409  what is to become a volume has no file; details: origin
    |-- OffsetGap              409  bytes before these are missing; details: offset to continue from
    |-- LeaseOver              409  the lease ended: nothing new is taken for it
    |-- StreamNotFound         404
    |-- BadManifest            400  details: errors, one a file
    |-- StorageFull            422  the organisation's quota of kept bytes and files; details: size, kept, allowed
    |-- ManifestChanged        409  this step was announced with other files
    |-- ArtifactNotFound       404
    |-- ArtifactClosed         409  abandoned or deleted
    |-- ArtifactInUse          409  a job that has not ended needs it
    |-- ArtifactInVolume       409  a volume keeps it; details: name, version
    |-- UploadIncomplete       409  bytes are missing or damaged; details: paths
    |-- UploadBusy             503  another request puts the parts together; details: retry_after_seconds
    |-- UploadRefused          400  the bytes are not those that the address was made for
    |-- AlreadyStored          409  other bytes are stored; stored bytes never change
    |-- LinkRefused            403  the address is forged or has expired
    |-- BodyTooLarge           413
    |-- ProtocolUnsupported    426  details: spoken
    |-- InputMissing           400  the job file names files and none came
    |-- SecretsMismatch        400  details: missing, unknown
    `-- UnknownInput           400  the input is not the organisation's, or not an input
"""

from __future__ import annotations

from jobs.payment.terms import Payment
from marketplace.foundation.errors import SoukError


class JobsError(SoukError):
    message = "The marketplace refused this."
    code = "jobs_error"
    status = 409


class BadSpec(JobsError):
    message = "The job file has mistakes; details lists every one."
    code = "bad_spec"
    status = 422


class JobFileTooLarge(JobsError):
    message = "A job file has at most {bytes_max} bytes. Put large texts beside it, and name them in `files:`."
    code = "job_file_too_large"
    status = 413


class UnknownAsset(BadSpec):
    message = "payment.asset names nothing that pays here; details say what does."
    code = "unknown_asset"


class NoEscrowContract(JobsError):
    message = (
        "This marketplace has no escrow contract for {asset}. Leave payment.mode out to pay from your balance here."
    )
    code = "no_escrow_contract"
    status = 400


class AuthorizationMissing(JobsError):
    message = (
        "payment.mode: escrow needs a hold that your wallet signed for job {job_id}: {amount} base units in "
        "the contract {contract}. `souk launch --wallet-key-file FILE` signs it."
    )
    code = "authorization_missing"
    status = 400


class AuthorizationUnexpected(JobsError):
    message = (
        "A hold signed by a wallet came with a job that is paid from your balance here. Set payment.mode: "
        "escrow, or leave it out."
    )
    code = "authorization_unexpected"
    status = 400


class WalletShort(JobsError):
    message = (
        "Your wallet {wallet} has too little in the contract: {missing} is missing. Deposit it with `souk "
        "escrow deposit`, wait until it is final, and submit again."
    )
    code = "wallet_short"
    status = 402

    def __init__(self, payment: Payment, *, wallet: str, missing_units: int) -> None:
        super().__init__(
            wallet=wallet,
            asset=payment.asset,
            missing=payment.show(missing_units),
            missing_units=str(missing_units),
            missing_usd_micros=payment.usd_micros(missing_units),
        )


class HoldCannotGrow(JobsError):
    message = "{what}: what the contract holds for a job is what your wallet signed. Launch the job file again, {how}."
    code = "hold_cannot_grow"


class PriceUnsettled(JobsError):
    message = "The job's price of its token is too old, and the one of now is unknown or needs its customer's word."
    code = "price_unsettled"


class PriceNotAsked(JobsError):
    message = "The job waits for no word on a price."
    code = "price_not_asked"


class PriceMoved(JobsError):
    message = (
        "{asset} is at {asked}, not at the {given} that you confirm. Look at the job again, and confirm what it asks."
    )
    code = "price_moved"


class NoWallet(JobsError):
    message = (
        "The provider of node {node_id} has no wallet for {asset} that the contract knows. The job is placed elsewhere."
    )
    code = "no_wallet"


class AssetTooCoarse(JobsError):
    message = (
        "{asset} cannot pay for this: at the present price {rate} base units are an hour's pay, and rounding "
        "would cost more than a thousandth of it."
    )
    code = "asset_too_coarse"


class DelegationRefused(JobsError):
    message = "The delegation is refused: {why}."
    code = "delegation_refused"
    status = 400


class ExportTooLarge(JobsError):
    message = "That is more than {receipts_max} receipts. Export a shorter time."
    code = "export_too_large"


class UnknownKind(JobsError):
    message = "This marketplace does not know jobs of kind {kind}; it knows {known}."
    code = "unknown_kind"


class ImageNotAllowed(JobsError):
    message = (
        "The image is of the registry {registry}, from which nodes fetch nothing. Push it to one of these, where "
        "anyone may pull it: {allowed}."
    )
    code = "image_not_allowed"
    status = 422


class NoFit(JobsError):
    message = "No node fits this job now; details say why and what would help."
    code = "no_fit"


class QuoteNotFound(JobsError):
    message = "There is no such quote, or it is not yours. Ask for a new one."
    code = "quote_not_found"
    status = 404


class QuoteExpired(JobsError):
    message = "The quote expired at {expired_at}. Ask for a new one and submit with it."
    code = "quote_expired"


class QuoteMismatch(JobsError):
    message = "The quote was made for another job file. Ask for a quote for this one."
    code = "quote_mismatch"


class QuoteForged(JobsError):
    message = "The stored quote does not bear this marketplace's signature. Ask for a new one."
    code = "quote_forged"


class QuoteUsed(JobsError):
    message = "The quote was used for job {job_id}. One quote makes one job; ask for a new one."
    code = "quote_used"


class TooManyWaiting(JobsError):
    message = "{jobs_max} jobs of the organisation wait for a place already. Cancel some, or submit as they start."
    code = "too_many_waiting"
    status = 422


class NotEnoughMoney(JobsError):
    message = "The balance does not cover the job's cap: {missing} is missing. Deposit it, or lower budget.max_total."
    code = "not_enough_money"
    status = 402

    def __init__(self, payment: Payment, *, missing_units: int, cap_usd_micros: int) -> None:
        super().__init__(
            asset=payment.asset,
            missing=payment.show(missing_units),
            missing_units=str(missing_units),
            missing_usd_micros=payment.usd_micros(missing_units),
            cap_usd_micros=cap_usd_micros,
        )


class CapTooLow(JobsError):
    message = "The new cap of {cap_usd_micros} micro-USD is not above the present one of {present_usd_micros}."
    code = "cap_too_low"


class JobEnded(JobsError):
    message = "The job has ended: it is {state}."
    code = "job_ended"


class JobNotPaused(JobsError):
    message = "Only a paused job can be resumed; this one is {state}."
    code = "job_not_paused"


class JobNotEnded(JobsError):
    message = "The job has not ended yet: it is {state}."
    code = "job_not_ended"


class JobNotFound(JobsError):
    message = "There is no such job, or it is not yours."
    code = "job_not_found"
    status = 404


class SecretsGone(JobsError):
    message = "The job's secrets were erased when it ended. Launch its job file again."
    code = "secrets_gone"


class DeviceTaken(JobsError):
    message = "Another placement took a device of node {node_id} first. The job is placed again with fresh eyes."
    code = "device_taken"


class NoGangPort(JobsError):
    message = "All {ports} ports of gangs are in use on these nodes. The job is placed when a gang there has ended."
    code = "no_gang_port"


class LeaseNotFound(JobsError):
    message = "There is no such lease, or it is not this node's."
    code = "lease_not_found"
    status = 404


class StaleFence(JobsError):
    message = "The lease's fence is {fence}, not {given}: this was sent for an assignment that no longer counts."
    code = "stale_fence"


class InputNotReady(JobsError):
    message = "The files of input {artifact_id} are not uploaded completely. Complete the upload, then submit."
    code = "input_not_ready"


class ResultNotReady(JobsError):
    message = "inputs.{folder}: no job {job} of yours has a complete result here. `souk jobs` lists yours."
    code = "result_not_ready"


class VolumeNotFound(JobsError):
    message = "No volume of yours is called {name!r}.{nearest} `souk volumes list` lists yours."
    code = "volume_not_found"
    status = 404


class VolumeVersionNotFound(JobsError):
    message = "Volume {name!r} has no version {version}; {versions}. `souk volumes show {name}` lists them."
    code = "volume_version_not_found"
    status = 404


class VolumeVersionInUse(JobsError):
    message = "Version {version} is the newest of volume {name!r}, and goes with it: `souk volumes delete {name}`."
    code = "volume_version_in_use"


class VolumeGone(JobsError):
    message = (
        "The files of version {version} of volume {name!r} were deleted, as nobody paid for keeping them. Put them"
        " there again: `souk volumes put {name} ...`."
    )
    code = "volume_gone"


class VolumesFull(JobsError):
    message = (
        "An organisation has at most {volumes_max} volumes, of at most {versions_max} versions each."
        " `souk volumes delete NAME` deletes one, `souk volumes delete NAME --version N` an old version of it."
    )
    code = "volumes_full"
    status = 422


class VolumeEmpty(JobsError):
    message = "{origin} has no file, so there is nothing to keep as a volume."
    code = "volume_empty"


class InputMixed(JobsError):
    message = (
        "{path!r} is among the job's files, and {folder}/ is kept for what an earlier job left, or a volume holds."
        " Rename one of them."
    )
    code = "input_mixed"
    status = 400


class UnknownInput(JobsError):
    message = "There is no input {artifact_id}, or it is not yours. Upload the job's files first."
    code = "unknown_input"
    status = 400


class InputMissing(JobsError):
    message = "The job file names files. Upload them first and submit with their input_artifact_id."
    code = "input_missing"
    status = 400


class SecretsMismatch(JobsError):
    message = "The secrets given are not those that the job file names; missing: {missing}, unknown: {unknown}."
    code = "secrets_mismatch"
    status = 400


class OffsetGap(JobsError):
    message = "The server has {offset} bytes of this stream; send on from there."
    code = "offset_gap"


class LeaseOver(JobsError):
    message = "The lease has ended, and all that it had to say has arrived; nothing new is taken for it."
    code = "lease_over"


class StreamNotFound(JobsError):
    message = "The job has no attempt {attempt} with a node of rank {node_rank}."
    code = "stream_not_found"
    status = 404


class BadManifest(JobsError):
    message = "The list of files cannot be accepted; details say which and why."
    code = "bad_manifest"
    status = 400


class StorageFull(JobsError):
    message = (
        "The list has {files} files of {size_bytes} bytes in all. The organisation keeps {kept_bytes} of the "
        "{allowed_bytes} bytes that it may, and {kept_files} of the {allowed_files} files. Send fewer, or ask the "
        "operator for a larger quota."
    )
    code = "storage_full"
    status = 422  # a node must not take it for a fault of its own; a 413 may be any proxy's


class ManifestChanged(JobsError):
    message = "Artifact {artifact_id} was announced with other files before. Announce the same ones, or the next step."
    code = "manifest_changed"


class ArtifactNotFound(JobsError):
    message = "There is no such artifact, or it is not yours."
    code = "artifact_not_found"
    status = 404


class ArtifactClosed(JobsError):
    message = "Artifact {artifact_id} is {state}; nothing can be uploaded to it or fetched from it."
    code = "artifact_closed"


class ArtifactInUse(JobsError):
    message = "A job that has not ended needs artifact {artifact_id}; it can be deleted when that job has ended."
    code = "artifact_in_use"


class ArtifactInVolume(JobsError):
    message = "Volume {name} keeps artifact {artifact_id} as its version {version}: `souk volumes delete {name}`."
    code = "artifact_in_volume"


class UploadIncomplete(JobsError):
    message = "Bytes are missing or damaged; details name the files. Announce the artifact again to get new addresses."
    code = "upload_incomplete"


class UploadBusy(JobsError):
    message = "The parts of a large file are being put together; ask again in a moment."
    code = "upload_busy"
    status = 503


class UploadRefused(JobsError):
    message = "The address is for {expected} bytes, and {given} came."
    code = "upload_refused"
    status = 400


class AlreadyStored(JobsError):
    message = "Other bytes are stored at this address already, and stored bytes never change."
    code = "already_stored"


class LinkRefused(JobsError):
    message = "The address was changed or has expired. Ask for a new one."
    code = "link_refused"
    status = 403


class BodyTooLarge(JobsError):
    message = "The request has more than {bytes_max} bytes."
    code = "body_too_large"
    status = 413


class ProtocolUnsupported(JobsError):
    message = "This marketplace speaks protocol {spoken}, not {given}. Upgrade: pip install --upgrade 'gpusouk[agent]'."
    code = "protocol_unsupported"
    status = 426
