"""gVisor where the engine has it, and folders that a provider lends: what a program sees of each."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from provider_agent.errors import ExecutorFailed
from tests.contracts.executors.hostile.conftest import Node
from tests.contracts.executors.hostile.conftest import node as node  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.docker

GVISOR_KERNEL = "4.4.0"  # what gVisor says that it is
READ_LENT = (
    "import os\n"
    "root = '/souk-lent/corpus'\n"
    "print(sorted(os.listdir('/souk-lent')), open(f'{root}/text').read())\n"
    "for path in (f'{root}/out', f'{root}/up/secret'):\n"
    "    try: print('READ', open(path).read())\n"
    "    except OSError as error: print('refused', error.errno)\n"
    "try: open(f'{root}/text', 'w'); print('WRITTEN')\n"
    "except OSError as error: print('refused', error.errno)\n"
)


def test_program_runs_on_gvisors_kernel_where_the_engine_has_it(node: Node) -> None:
    if shutil.which("runsc") is None:
        pytest.skip("not installed: runsc")
    executor = node.executor(isolation="auto")
    assert executor.isolation(has_gpus=False) == "gvisor"
    assert executor.isolation(has_gpus=True) == "runc"
    code = "import os; open('/souk/made', 'w').write('x'); print(os.uname().release, os.getuid())"
    sandboxed = node.start(code, executor=executor)
    assert sandboxed.wait().code == 0
    assert sandboxed.log() == f"{GVISOR_KERNEL} 10001\n"
    assert (sandboxed.work / "made").exists()
    assert any("runsc" in line for line in executor.describe(sandboxed.spec))
    plain = node.start(code)
    plain.wait()
    assert plain.log() == f"{os.uname().release} 10001\n"


def test_memory_limit_holds_under_gvisor_too(node: Node) -> None:
    if shutil.which("runsc") is None:
        pytest.skip("not installed: runsc")
    eater = node.start(
        "held = bytearray(400 * 2**20); held[::4096] = b'x' * len(held[::4096]); print('ate')",
        executor=node.executor(isolation="gvisor"),
    )
    assert eater.wait().code != 0
    assert "ate" not in eater.log()
    node.assert_works()


def test_node_that_promises_gvisor_and_has_none_says_so(node: Node) -> None:
    executor = node.executor(isolation="runc")
    executor._wanted_isolation, executor._info = "gvisor", {"Runtimes": {}}
    with pytest.raises(ExecutorFailed, match="install gVisor"):
        executor._require_isolation()


def test_lent_folder_is_read_and_neither_written_nor_left(node: Node, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("the provider's")
    lent = tmp_path / "lent"
    lent.mkdir()
    (lent / "text").write_text("once upon a time")
    (lent / "out").symlink_to(outside / "secret")
    (lent / "up").symlink_to(outside)
    for path in (tmp_path, lent, lent / "text", outside, outside / "secret"):
        path.chmod(0o755)
    reader = node.start(READ_LENT, shared_folders={"corpus": str(lent)})
    reader.wait()
    assert reader.log().splitlines() == ["['corpus'] once upon a time", "refused 2", "refused 2", "refused 30"]
    assert (lent / "text").read_text() == "once upon a time"
