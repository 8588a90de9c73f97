"""What can go wrong around endpoint keys.

JobsError
|-- KeyNotFound      404
|-- KeyReachesNothing 400  names endpoints that it could not call; details: endpoint_ids
|-- KeyLifeInvalid   400  it would have expired already
`-- TooManyEndpointKeys 409
"""

from __future__ import annotations

from jobs.errors import JobsError


class KeyNotFound(JobsError):
    """There is no such endpoint key, or it is not your organisation's."""

    code = "endpoint_key_not_found"
    status = 404


class KeyReachesNothing(JobsError):
    """The key names endpoints that it could not call: {endpoint_ids}. Name open ones, of yours or public."""

    code = "endpoint_unknown"
    status = 400


class KeyLifeInvalid(JobsError):
    """The key would expire before it could be used. Give a later expires_at."""

    code = "key_expired"
    status = 400


class TooManyEndpointKeys(JobsError):
    """Your organisation has {count} live endpoint keys. Revoke those that nobody uses."""

    code = "too_many_endpoint_keys"
