"""One question to one endpoint over HTTP: a whole answer in time and of a size that can be read, or none."""

from __future__ import annotations

import time
from typing import Any, Final

ANSWER_BYTES_MAX: Final = 64 * 2**20  # a page of 10,000 logs is a tenth of it
CHUNK_BYTES: Final = 64 * 2**10


class AnswerRefused(Exception):
    """What came is no answer: another status than 200, too much, or too late."""


def connect(url: str, timeout: float) -> Any:
    """web3 over this endpoint. It follows no redirect: only the configured endpoint is called."""
    from eth_typing import URI
    from web3 import HTTPProvider, Web3
    from web3.middleware import ExtraDataToPOAMiddleware

    class BoundedProvider(HTTPProvider):
        """requests' own timeout begins anew with every byte, and its body has no end."""

        def _make_request(self, method: Any, request_data: bytes) -> bytes:
            session = self._request_session_manager.cache_and_return_session(URI(url))
            if session.trust_env:
                _read_environment(session, url)
            deadline = time.monotonic() + timeout
            with session.post(
                url,
                data=request_data,
                headers=self.get_request_headers(),
                timeout=timeout,
                stream=True,
                allow_redirects=False,
            ) as response:
                if response.status_code != 200:
                    raise AnswerRefused(f"HTTP {response.status_code}")
                return _read(response, deadline)

    provider = BoundedProvider(url, exception_retry_configuration=None)
    w3 = Web3(provider)
    w3.middleware_onion.remove("validation")  # asks for the chain's id before every call
    w3.middleware_onion.inject(ExtraDataToPOAMiddleware, layer=0)  # chains whose blocks carry their makers' signatures
    return w3


def is_silence(error: Exception) -> bool:
    """Whether the endpoint did not answer at all, so that the next call to it would only take as long."""
    from requests import RequestException

    return isinstance(error, RequestException | OSError)


def is_refusal(error: Exception) -> bool:
    """Whether it answered that it will not answer this: a smaller question may do."""
    from web3.exceptions import Web3RPCError

    return isinstance(error, Web3RPCError | AnswerRefused)


def _read_environment(session: Any, url: str) -> None:
    """Proxies, certificates and ~/.netrc, once: requests would read all of them again at every question."""
    from requests.utils import get_netrc_auth

    found = session.merge_environment_settings(url, {}, None, None, None)
    session.proxies, session.verify = dict(found["proxies"]), found["verify"]
    session.auth = session.auth or get_netrc_auth(url)
    session.trust_env = False


def _read(response: Any, deadline: float) -> bytes:
    body = bytearray()
    while chunk := response.raw.read1(CHUNK_BYTES, decode_content=True):
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise AnswerRefused(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("the answer came too slowly")
    return bytes(body)
