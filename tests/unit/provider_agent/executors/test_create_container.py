"""The exact request by which a container is made, as an engine receives it: a change of it changes the sandbox."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from provider_agent.executors.base import LaunchSpec
from provider_agent.executors.docker import DockerExecutor, seccomp

LEASE = UUID(int=7)
IMAGE_ID = "sha256:" + "ab" * 32
GOLDEN = Path(__file__).with_name("create_container.json")
GPU = "GPU-12345678-1234-1234-1234-123456789abc"


class FakeEngine(http.server.BaseHTTPRequestHandler):
    """Answers the SDK's requests, and keeps the body of each request to create."""

    created: list[dict[str, Any]] = []
    info: dict[str, Any] = {}

    def do_GET(self) -> None:
        path = self.path.split("?")[0].partition("/v1.41")[2] or self.path.split("?")[0]
        answers: dict[str, Any] = {
            "/version": {"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"},
            "/info": self.info,
            "/images/alice/program:1/json": {
                "Id": IMAGE_ID,
                "RepoDigests": [],
                "Config": {"Env": ["PATH=/bin", "LD_PRELOAD=/evil.so", "NVIDIA_VISIBLE_DEVICES=all"]},
            },
            f"/containers/{LEASE.hex}/json": {
                "Id": LEASE.hex,
                "State": {"Status": "exited", "ExitCode": 0},
                "HostConfig": {"NetworkMode": "none"},
                "Config": {"Tty": False},
            },
        }
        self._answer(answers.get(path), path)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "/containers/create" in self.path:
            self.created.append({"query": self.path.partition("?")[2], "body": json.loads(body)})
            self._answer({"Id": LEASE.hex}, self.path)
        else:
            self._answer({}, self.path)

    def _answer(self, answer: Any, path: str) -> None:
        data = json.dumps(answer if answer is not None else {"message": f"no {path}"}).encode()
        self.send_response(200 if answer is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def engine() -> Iterator[str]:
    FakeEngine.created, FakeEngine.info = [], {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeEngine)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"tcp://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def create(engine: str, tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """What the engine was ordered to create."""
    executor = DockerExecutor(engine_url=engine)
    asyncio.run(executor.check())
    values: dict[str, Any] = {
        "lease_id": LEASE,
        "folder": tmp_path,
        "argv": ["python3", "-m", "runtimes.launch"],
        "env": {"LANG": "C.UTF-8", "LD_LIBRARY_PATH": "/evil"},
        "cores": [0, 1],
        "memory_mib_max": 2048,
        "image": "alice/program:1",
        "shared_folders": {"corpus": "/srv/corpus"},
    }
    spec = LaunchSpec(**values | changes)
    spec.work.mkdir(exist_ok=True)
    asyncio.run(executor.start(spec))
    asyncio.run(executor.close())
    (request,) = FakeEngine.created
    return request


def test_container_is_created_exactly_so(engine: str, tmp_path: Path) -> None:
    request = create(engine, tmp_path)
    security = request["body"]["HostConfig"]["SecurityOpt"]
    profile = json.loads(security.pop().removeprefix("seccomp="))
    assert profile == seccomp.profile()
    text = json.dumps(request, indent=2, sort_keys=True).replace(str(tmp_path), "LEASE_FOLDER") + "\n"
    text = text.replace(str(tmp_path.parent), "LEASES_FOLDER")
    assert text == GOLDEN.read_text()


def test_rented_gpus_come_by_uuid_and_by_cdi_where_the_engine_has_it(engine: str, tmp_path: Path) -> None:
    (request,) = create(engine, tmp_path, gpu_uuids=[GPU])["body"]["HostConfig"]["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("", [GPU])
    FakeEngine.created = []
    FakeEngine.info = {"DiscoveredDevices": [{"Source": "cdi", "ID": f"nvidia.com/gpu={GPU}"}]}
    (request,) = create(engine, tmp_path, gpu_uuids=[GPU])["body"]["HostConfig"]["DeviceRequests"]
    assert (request["Driver"], request["DeviceIDs"]) == ("cdi", [f"nvidia.com/gpu={GPU}"])


def test_share_of_the_processor_is_limited_where_no_cores_are_named(engine: str, tmp_path: Path) -> None:
    host = create(engine, tmp_path, cores=[], cpus_max=1.5)["body"]["HostConfig"]
    assert (host["NanoCpus"], host.get("CpusetCpus")) == (1_500_000_000, None)


def test_gvisor_is_the_runtime_where_the_engine_has_it_and_there_is_no_gpu(engine: str, tmp_path: Path) -> None:
    FakeEngine.info = {"Runtimes": {"runc": {}, "runsc": {}}}
    assert create(engine, tmp_path)["body"]["HostConfig"]["Runtime"] == "runsc"
    FakeEngine.created = []
    assert "Runtime" not in create(engine, tmp_path, gpu_uuids=[GPU])["body"]["HostConfig"]


def test_profile_denies_by_default_and_names_no_dangerous_call() -> None:
    profile = seccomp.profile("x86_64")
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    assert profile["architectures"] == ["SCMP_ARCH_X86_64"]
    allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    dangerous = {
        *("bpf", "keyctl", "add_key", "request_key", "userfaultfd", "perf_event_open", "ptrace"),
        *(
            "io_uring_setup",
            "io_uring_enter",
            "io_uring_register",
            "unshare",
            "setns",
            "mount",
            "umount2",
            "pivot_root",
        ),
        *("init_module", "finit_module", "delete_module", "kexec_load", "open_by_handle_at", "name_to_handle_at"),
        *("fsopen", "fsmount", "move_mount", "open_tree", "reboot", "swapon", "syslog", "acct", "chroot", "quotactl"),
    }
    assert not allowed & dangerous
    rules = [rule for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW"]
    families = [rule["args"][0]["value"] for rule in rules if "socket" in rule["names"]]
    assert families == [1, 2, 10, 16]  # local, IPv4, IPv6, netlink
    assert [rule["args"] for rule in rules if rule["names"] == ["clone"]] == [
        [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    ]
