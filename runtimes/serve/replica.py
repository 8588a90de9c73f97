"""One replica from its configuration to its end: `serve` calls all other modules of this runtime."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runtimes.contract import SERVE_SOCKET, EventKind, EventWriter
from runtimes.serve.choose import choose_engine
from runtimes.serve.config import ServeConfig
from runtimes.serve.devices import find_devices
from runtimes.serve.engines.base import ENGINE_SOCKET, Devices, Engine
from runtimes.serve.errors import ServeError, Stopped
from runtimes.serve.listener import Listener
from runtimes.serve.metrics import read_served, report_served
from runtimes.serve.model import Model
from runtimes.serve.process import EngineProcess
from runtimes.serve.warm import FIRST_TOKEN_SECONDS_MAX, get_token, read_facts, wait_until_up
from runtimes.serve.watchdog import Watch, watch
from runtimes.serve.weights import find_model

ENGINE_FOLDER = ".engine"  # below the work folder, from which all is named: sockets' paths may have 108 bytes
ENGINE_SOCKET_PATH = f"{ENGINE_FOLDER}/{ENGINE_SOCKET}"
DRAIN_SECONDS = 60.0


@dataclass(frozen=True)
class ReplicaEnvironment:
    """Where this replica is, and how it behaves. The working directory is the work folder."""

    env: dict[str, str] = field(repr=False)
    input_dir: Path
    lent_dir: Path
    drain_seconds: float
    report_seconds: float
    watching: Watch


async def serve(config: ServeConfig, environment: ReplicaEnvironment, events: EventWriter) -> None:
    """Bring the model up and answer until the end; always raises a ServeError, which is Stopped after a SIGTERM."""
    stop, ready = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    work = asyncio.create_task(_live(config, environment, events, stop, ready))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.is_set():  # no request waits for a replica that is still loading: it ends at once
            work.cancel()
        await work
    except asyncio.CancelledError as error:
        raise Stopped("stopped before it was ready") from error
    finally:
        stopping.cancel()


async def _live(
    config: ServeConfig, environment: ReplicaEnvironment, events: EventWriter, stop: asyncio.Event, ready: asyncio.Event
) -> None:
    began = time.monotonic()
    # 1. Weights, checked; the engine that can serve them here.
    model = await _in_thread(
        lambda: find_model(config.model, input_dir=environment.input_dir, lent_dir=environment.lent_dir, events=events)
    )
    devices = find_devices(environment.env)
    engine = choose_engine(model, devices, config)
    # 2. The listener exists from now on, and refuses requests.
    listener = Listener(ENGINE_SOCKET_PATH, extra_paths=engine.extra_paths)
    await listener.listen(SERVE_SOCKET)
    events.write(EventKind.LOADING, stage="engine", engine=engine.name, bytes_total=model.weights_bytes)
    process = await EngineProcess.start(engine.launch(model, devices, config), Path(ENGINE_FOLDER))
    replica = Replica(config, environment, events, engine, listener, process)
    try:
        # 3. One real token, on the path that callers' requests take; then it may be announced.
        await wait_until_up(process, ENGINE_SOCKET_PATH, events)
        await replica.get_first_token()
        await replica.report_ready(model, devices, began=began)
        listener.open()
        ready.set()
        # 4. Answer, until SIGTERM or until something breaks; then drain.
        await replica.answer(stop)
        await replica.drain()
    finally:
        await listener.close()
        await process.stop(is_sane=listener.state == "draining")


@dataclass(frozen=True)
class Replica:
    """An engine behind its listener."""

    config: ServeConfig
    environment: ReplicaEnvironment
    events: EventWriter
    engine: Engine
    listener: Listener
    process: EngineProcess

    async def get_first_token(self) -> None:
        """The first token; raises ServeError with the reason if there is none, the engine's end before all others."""
        token = get_token(self.engine, self.config, self.listener, SERVE_SOCKET, seconds=FIRST_TOKEN_SECONDS_MAX)
        getting = asyncio.create_task(token)
        await asyncio.wait({getting, self.process.ended}, return_when=asyncio.FIRST_COMPLETED)
        if self.process.ended.done():
            getting.cancel()
            raise await self.process.why_ended()
        try:
            await getting
        except ServeError:
            if not self.process.is_alive:
                raise await self.process.why_ended() from None
            raise

    async def report_ready(self, model: Model, devices: Devices, *, began: float) -> None:
        """The meter starts with `started`; `ready` is what the agent announces to gateways."""
        facts = self.engine.facts(model, self.config, await read_facts(ENGINE_SOCKET_PATH))
        common = {"model": self.config.served_as, "device": devices.kind, "dtype": facts.pop("dtype", None)}
        self.events.write(EventKind.STARTED, **common, world_size=devices.count)
        self.events.write(
            EventKind.READY,
            **common,
            engine=self.engine.name,
            version=self.engine.version(),
            capabilities=sorted(self.engine.capabilities(model, self.config)),
            weights_digest=model.digest,
            tokenizer_digest=model.tokenizer_digest,
            weights_bytes=model.weights_bytes,
            seconds=round(time.monotonic() - began, 3),
            **facts,
        )

    async def answer(self, stop: asyncio.Event) -> None:
        """Returns when `stop` is set; raises ServeError when the engine ended or computes nothing."""
        reporting = asyncio.create_task(
            report_served(
                self.listener,
                ENGINE_SOCKET_PATH,
                self.engine.counters,
                self.events,
                every=self.environment.report_seconds,
            )
        )
        watching = asyncio.create_task(
            watch(self.engine, self.config, self.listener, SERVE_SOCKET, self.environment.watching)
        )
        stopping = asyncio.create_task(stop.wait())
        try:
            waited = {watching, stopping, reporting, self.process.ended}
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if self.process.ended in done:
                raise await self.process.why_ended()
            for task in done:
                await task
        finally:
            for task in (reporting, watching, stopping):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ServeError):
                    await task

    async def drain(self) -> None:
        """Let what is in flight end, within its time; always raises Stopped."""
        is_empty = await self.listener.drain(self.environment.drain_seconds)
        left = self.listener.in_flight
        self.events.write(
            EventKind.SERVED, **await read_served(self.listener, ENGINE_SOCKET_PATH, self.engine.counters)
        )
        raise Stopped("stopped; every request was answered" if is_empty else f"stopped; {left} requests were cut off")


async def _in_thread(work: Callable[[], Model]) -> Model:
    """What the work returns, from a thread that is abandoned if this replica is stopped in between."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Model] = loop.create_future()

    def settle(model: Model | None, error: Exception | None) -> None:
        if found.done():
            return
        if error is not None:
            found.set_exception(error)
        elif model is not None:
            found.set_result(model)

    def do() -> None:
        try:
            model = work()
        except Exception as error:  # it is raised again where it is waited for
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, model, None)

    threading.Thread(target=do, daemon=True).start()
    return await found
