"""What can go wrong around endpoints and their keys.

JobsError
|-- EndpointNotFound     404
|-- EndpointNameTaken    409  an open endpoint of the organisation has this name; details: job_id
|-- EndpointClosed       409  its job has ended
|-- ModelNotReady        409  the job that is to be served has no complete output; details: job_id
|-- DeployMismatch       409  a new version may change what is served, not what was quoted; details: fields
|-- NothingToRollBack    409  the newest version is the only one, or has proved itself already
|   `-- NothingToTakeBack 409  the same at the old address, under the code that it had there
|-- GatewayUnknown       401  the caller does not have the gateways' token
|-- KeyNotFound          404
|-- KeyReachesNothing    400  names endpoints that it could not call; details: endpoint_ids
|-- KeyLifeInvalid       400  it would have expired already
`-- TooManyEndpointKeys  409
"""

from __future__ import annotations

from jobs.errors import JobsError


class EndpointNotFound(JobsError):
    message = "There is no such endpoint."
    code = "endpoint_not_found"
    status = 404


class EndpointNameTaken(JobsError):
    message = (
        "An open endpoint already answers to {model!r}: cancel it, deploy a new version, or serve under another name."
    )
    code = "endpoint_name_taken"
    status = 409


class EndpointClosed(JobsError):
    message = "The endpoint's job has ended."
    code = "endpoint_closed"
    status = 409


class ModelNotReady(JobsError):
    message = "The job {job_id} has no complete output to serve: it has to be a finished training of your organisation."
    code = "model_not_ready"
    status = 409


class DeployMismatch(JobsError):
    message = (
        "A new version may not change {fields}: those were quoted with the endpoint. Launch another endpoint for them."
    )
    code = "deploy_mismatch"
    status = 409


class NothingToRollBack(JobsError):
    message = "There is no version before the newest to go back to: deploy the old job file again."
    code = "nothing_to_roll_back"
    status = 409


class NothingToTakeBack(NothingToRollBack):
    message = NothingToRollBack.message
    code = "nothing_to_take_back"


class GatewayUnknown(JobsError):
    message = "This address is for gateways, which have a token."
    code = "gateway_unknown"
    status = 401


class KeyNotFound(JobsError):
    message = "There is no such endpoint key, or it is not your organisation's."
    code = "endpoint_key_not_found"
    status = 404


class KeyReachesNothing(JobsError):
    message = "The key names endpoints that it could not call: {endpoint_ids}. Name open ones, of yours or public."
    code = "endpoint_unknown"
    status = 400


class KeyLifeInvalid(JobsError):
    message = "The key would expire before it could be used. Give a later expires_at."
    code = "key_expired"
    status = 400


class TooManyEndpointKeys(JobsError):
    message = "Your organisation has {count} live endpoint keys. Revoke those that nobody uses."
    code = "too_many_endpoint_keys"
