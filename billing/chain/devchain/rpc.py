"""The development chain behind Ethereum's JSON-RPC over HTTP, on loopback only.

    python -m billing.chain.devchain.rpc --port 8545 --journal DATA/chain/journal.jsonl

It speaks what clients of contracts need (https://ethereum.org/developers/docs/apis/json-rpc), batches too. Everybody
who reaches it may move its clock: that is what a development chain is for, and why it listens nowhere else.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import logging
import socket
import socketserver
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from billing.chain.devchain.chain import CHAIN_ID, DevChain, Refused
from billing.chain.devchain.methods import METHODS
from billing.chain.devchain.wire import as_wire, error_of

BODY_BYTES_MAX: Final = 4 * 1024 * 1024
BATCH_MAX: Final = 100

log = logging.getLogger(__name__)


def answer(chain: DevChain, request: Any) -> Any:
    """The response to one call or to a batch."""
    if isinstance(request, list):
        if not 1 <= len(request) <= BATCH_MAX:
            return error_of(None, -32600, f"a batch has 1 to {BATCH_MAX} calls")
        return [
            answer(chain, one) if isinstance(one, dict) else error_of(None, -32600, "not a call") for one in request
        ]
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        return error_of(None, -32600, "not a call")
    return _answer_one(chain, request)


def _answer_one(chain: DevChain, request: dict[str, Any]) -> Any:
    method = METHODS.get(request["method"])
    if method is None:
        return error_of(request.get("id"), -32601, f"the method {request['method']} does not exist here")
    try:
        result = method(chain, list(request.get("params") or []))
    except Refused as refused:
        return error_of(request.get("id"), refused.code, str(refused), refused.data)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        return error_of(request.get("id"), -32602, f"invalid params: {error!r}")
    except Exception as error:  # one bad call must not end the connection of the others
        log.exception("A call failed.")
        return error_of(request.get("id"), -32603, f"internal error: {error!r}")
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": as_wire(result)}


def serve(
    chain: DevChain, *, host: str = "127.0.0.1", port: int = 0, listener: socket.socket | None = None
) -> ThreadingHTTPServer:
    """A server that is bound (or was given a listening socket) and not yet started.

    Raises ValueError for anything but a loopback address.
    """
    if listener is not None:
        host, port = listener.getsockname()[:2]
    if not ipaddress.ip_address(host).is_loopback:
        raise ValueError(f"the development chain listens on loopback only, not on {host}")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= BODY_BYTES_MAX:
                self.close_connection = True
                return self._send(413, error_of(None, -32600, f"a body has 1 to {BODY_BYTES_MAX} bytes"))
            try:
                request = json.loads(self.rfile.read(length))
            except (ValueError, RecursionError):
                return self._send(200, error_of(None, -32700, "not JSON"))
            return self._send(200, answer(chain, request))

        def _send(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Silent: a line a call would hide everything else."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

        def server_bind(self) -> None:
            if listener is not None:
                self.socket.close()
                self.socket = listener
                self.server_address = (host, port)
                self.server_name, self.server_port = host, port
                return
            socketserver.TCPServer.server_bind(self)  # HTTPServer's own queries the DNS for a name
            self.server_name, self.server_port = host, self.socket.getsockname()[1]

    return Server((host, port), Handler)


def main() -> int:
    """Serve until a signal stops it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8545)
    parser.add_argument("--fd", type=int, help="A socket that listens already, by its number.")
    parser.add_argument("--journal", type=Path)
    options = parser.parse_args()
    try:
        listener = socket.socket(fileno=options.fd) if options.fd is not None else None
        server = serve(DevChain(options.journal), host=options.host, port=options.port, listener=listener)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"the development chain cannot start: {error}\n")
        return 1
    sys.stdout.write(f"the development chain {CHAIN_ID} answers on http://{options.host}:{server.server_port}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
