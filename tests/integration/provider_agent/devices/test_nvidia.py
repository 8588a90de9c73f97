"""GPUs as NVML reports them; only the library's boundary is fake."""

from __future__ import annotations

import subprocess
import sys

import pytest

from provider_agent.devices.nvidia import find_gpus, has_driver
from provider_agent.protocol import DeviceKind
from tests.unit.provider_agent.devices.nvml import NvmlError, fake_nvml


def test_every_gpu_is_found_with_its_facts() -> None:
    nvml = fake_nvml()
    gpus = find_gpus(nvml)
    assert [(gpu.uuid, gpu.index, gpu.kind) for gpu in gpus] == [
        ("GPU-0", 0, DeviceKind.GPU),
        ("GPU-1", 1, DeviceKind.GPU),
    ]
    assert gpus[1].memory_mib == 81 * 1024
    assert gpus[0].details["cuda"] == "12.8"
    assert gpus[0].details["compute_capability"] == "9.0"
    assert (gpus[0].details["nvlinks"], gpus[0].details["ecc"]) == (4, "on")
    assert nvml.opened == []


def test_machine_without_driver_has_no_gpus() -> None:
    assert find_gpus(fake_nvml(works=False)) == []


def test_figure_that_a_virtual_gpu_hides_is_left_out() -> None:
    def hidden(handle: int) -> int:
        raise NvmlError("not supported")

    gpus = find_gpus(fake_nvml(1, nvmlDeviceGetMaxPcieLinkWidth=hidden))
    assert gpus[0].details["pcie_width"] is None


def test_old_library_that_answers_in_bytes_is_understood() -> None:
    assert find_gpus(fake_nvml(1, nvmlDeviceGetUUID=lambda handle: b"GPU-b"))[0].uuid == "GPU-b"


@pytest.mark.skipif(has_driver(), reason="NVIDIA's driver is here")
def test_where_there_is_no_driver_its_wrapper_is_not_loaded() -> None:
    code = (
        "import sys; from provider_agent.devices.nvidia import find_gpus\n"
        "print(find_gpus(), 'pynvml' in sys.modules, bool(__import__('pynvml')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False", "True"]


@pytest.mark.gpu
def test_real_library_agrees_with_the_fake() -> None:
    gpus = find_gpus()
    if not gpus:
        pytest.skip("no NVIDIA GPU here")
    assert all(gpu.uuid.startswith("GPU-") and gpu.memory_mib > 0 for gpu in gpus)
