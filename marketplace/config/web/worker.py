"""gunicorn's worker class: `gunicorn marketplace.config.wsgi:application --worker-class` and this class' name.

gunicorn starts and replaces the processes; each of them serves its sockets with uvicorn, on connections with bounds.
`--threads` is the number of threads in which Django answers, `--timeout` how long an event loop may be silent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from gunicorn.workers.base import Worker

from jobs.gateway.frontend.connections import IDLE_SECONDS_MAX, Server
from marketplace.config.web.connections import WebConnection

NOTIFY_SECONDS = 1
BODIES = "bodies"  # below SOUK_DATA; empty for everybody who looks


class WebWorker(Worker):  # type: ignore[misc]
    """One web process."""

    server: Server

    def run(self) -> None:
        """Until gunicorn ends it, or is gone."""
        # gunicorn imports this class before Django is set up; here it is.
        from django.conf import settings

        from marketplace.config.web.application import WebApplication

        WebConnection.counts_addresses = not settings.SOUK_TRUSTED_PROXIES
        folder = Path(settings.SOUK_DATA) / BODIES
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        application = WebApplication(self.wsgi, threads=self.cfg.threads, folder=folder)
        config = uvicorn.Config(
            application,
            http=WebConnection,
            ws="none",
            loop="uvloop",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            backlog=self.cfg.backlog,
            timeout_keep_alive=IDLE_SECONDS_MAX,
            timeout_graceful_shutdown=self.cfg.graceful_timeout,
            ssl_certfile=self.cfg.certfile,
            ssl_keyfile=self.cfg.keyfile,
            timeout_notify=NOTIFY_SECONDS,
            callback_notify=self._report_life,
        )
        self.server = Server(config, drain=application.drain, close=_nothing, on_listening=lambda port: None)
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(self.server.serve([one.sock for one in self.sockets]))
        sys.stdout.flush()
        # Threads that still answer nobody must not hold the process up.
        os._exit(0)

    def init_signals(self) -> None:
        """As gunicorn's, but none ends the process from within a handler."""
        super().init_signals()
        for number in (signal.SIGQUIT, signal.SIGABRT):
            signal.signal(number, self._end_at_once)

    def _end_at_once(self, number: int, frame: FrameType | None) -> None:
        os._exit(0)

    async def _report_life(self) -> None:
        self.notify()
        if os.getppid() != self.ppid or not self.alive:
            self.server.should_exit = True


async def _nothing() -> Any:
    """There is nothing to close after the requests."""
