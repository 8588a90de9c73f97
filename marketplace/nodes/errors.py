"""What can go wrong with supply.

SoukError
|-- AgentUnauthenticated      401  keys, headers or signature do not fit
|-- ClockSkew                 401  the signature fits, its time does not; details.server_time
|-- EnrolmentRefused          401  the token is unknown, used or expired
|-- ProofRefused              401  a key was not proven
|-- UnsupportedProtocol       400  details.spoken
|-- BadFacts                  400  facts, terms or measurements that cannot be
|-- AlreadyEnrolled           409  a key or a GPU belongs to another node
|-- NoProvider                403  the organisation has no provider profile yet
|-- ProviderExists            409
|-- NoOpenOffer               409
|-- RequestOutdated           409  a newer change of the node's standing was accepted before
|-- CheckOver                 409  the check is in another state than this step needs; details.state
|-- CheckAnswered             409  another answer to the same demand
|-- ProbeOver                 409  no report on this link is awaited from this node; details.state
|-- ProbeAnswered             409  another report on the same probe
|-- BadAnswer                 400  an answer that cannot be one
|-- NoSuchRelease             404
`-- ReleaseUnfit              400  a version, or a share, that a rollout cannot have
"""

from __future__ import annotations

from marketplace.foundation.errors import BadRequest, Forbidden, NotFound, SoukError


class AgentUnauthenticated(SoukError):
    message = "This request is not signed by the key of an enrolled node."
    code = "agent_unauthenticated"
    status = 401


class ClockSkew(SoukError):
    message = (
        "This request's time lies too far from the server's, which is {server_time}. Set the clock, then sign again."
    )
    code = "clock_skew"
    status = 401


class EnrolmentRefused(SoukError):
    message = (
        "This enrolment token is unknown, used or expired. Ask for a new one; it lives an hour and enrols one node."
    )
    code = "enrolment_refused"
    status = 401


class ProofRefused(SoukError):
    message = "The {key} key did not sign this enrolment."
    code = "proof_refused"
    status = 401


class UnsupportedProtocol(BadRequest):
    message = "This marketplace does not speak protocol {protocol}. Update the agent."
    code = "unsupported_protocol"


class BadFacts(BadRequest):
    message = "The node reports something that cannot be: {problem}."
    code = "bad_facts"


class AlreadyEnrolled(SoukError):
    message = "This {what} belongs to a node that is enrolled already. Retire that one first."
    code = "already_enrolled"
    status = 409


class NoProvider(Forbidden):
    message = "This organisation does not provide yet: create its provider profile first (POST /api/v1/provider)."
    code = "no_provider"


class ProviderExists(SoukError):
    message = "This organisation has its provider profile already."
    code = "provider_exists"
    status = 409


class NoOpenOffer(SoukError):
    message = "This node has no open offer."
    code = "no_open_offer"
    status = 409


class RequestOutdated(SoukError):
    message = (
        "This request was signed before the newest accepted change of the node's price, hours or standing, or sent "
        "twice. Nothing was changed. Look at how the node stands, and sign a new request if it is still wanted."
    )
    code = "request_outdated"
    status = 409


class CheckOver(SoukError):
    message = "This step is not awaited: the check is {state}."
    code = "check_over"
    status = 409


class CheckAnswered(SoukError):
    message = "This check was answered already, and differently. The first answer counts."
    code = "check_answered"
    status = 409


class ProbeOver(SoukError):
    message = "No report on this link is awaited: the probe is {state}."
    code = "probe_over"
    status = 409


class ProbeAnswered(SoukError):
    message = "This probe was reported already, and differently. The first report counts."
    code = "probe_answered"
    status = 409


class BadAnswer(BadRequest):
    message = "This cannot be an answer to the check: {problem}."
    code = "bad_answer"


class NoSuchRelease(NotFound):
    message = "There is no release {version} of the agent. Publish one: python manage.py publish_agent"
    code = "no_such_release"


class ReleaseUnfit(BadRequest):
    message = "This cannot be done with the agent's releases: {problem}."
    code = "release_unfit"
