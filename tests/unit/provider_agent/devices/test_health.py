"""GPUs that fail, one way after the other; only the library's boundary is fake."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from provider_agent.devices import health
from provider_agent.devices.health import GpuWatch, Reading
from provider_agent.devices.xids import XIDS, XidKind, xid_of

DRIVER = Path(__file__).parents[3] / "integration" / "provider_agent" / "fake_driver" / "pynvml.py"


class Machine:
    """Two GPUs, and the agent's watch over them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.be()
        specification = importlib.util.spec_from_file_location("fake_pynvml", DRIVER)
        assert specification is not None
        assert specification.loader is not None
        self.nvml: ModuleType = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(self.nvml)
        self.watch = GpuWatch(["GPU-0", "GPU-1"], self.nvml)
        assert self.watch.open()

    def be(self, **first: Any) -> None:
        """What is wrong with GPU-0 from now on."""
        self.path.write_text(json.dumps({"GPU-0": first, "GPU-1": {}}))

    def look(self) -> Reading:
        readings = self.watch.look()
        assert readings["GPU-1"].fault == ""
        return readings["GPU-0"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("SOUK_FAKE_GPUS", str(tmp_path / "gpus.json"))
    return Machine(tmp_path / "gpus.json")


def test_healthy_gpu_reports_its_figures(machine: Machine) -> None:
    machine.be(percent=97, throttle=0x44)
    found = machine.look()
    assert found.fault == ""
    assert found.figures["utilization_percent"] == 97
    assert found.figures["power_watts"] == 120.5
    assert (found.figures["throttled_by_heat"], found.figures["throttled_by_power"]) == (1, 1)
    assert found.figures["memory_errors_corrected"] == 7


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"lost": True}, "fallen off the bus: NVML says error 15"),
        ({"uncorrected": 2}, "2 uncorrected memory errors since the driver was loaded"),
        ({"remap_failed": True}, "rows of its memory could not be remapped"),
        ({"temperature": 96}, "at 96 degrees Celsius, where it shuts down"),
    ],
)
def test_broken_gpu_has_a_fault_until_it_is_healthy_again(machine: Machine, wrong: dict[str, Any], fault: str) -> None:
    machine.be(**wrong)
    assert machine.look().fault == fault
    machine.be()
    assert machine.look().fault == ""


def test_hot_gpu_comes_back_only_below_the_temperature_at_which_it_slows_down(machine: Machine) -> None:
    for temperature, is_out in [(94, False), (95, True), (92, True), (89, False), (92, False)]:
        machine.be(temperature=temperature)
        assert bool(machine.look().fault) is is_out


def test_xid_of_an_application_is_counted_and_one_of_hardware_takes_the_device_out(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.be(xids=[31, 13, 63])
    found = machine.look()
    assert (found.fault, found.figures["application_xids"]) == ("", 2)
    machine.be(xids=[31, 13, 63, 79])
    assert machine.look().fault == "Xid 79: GPU has fallen off the bus"
    machine.be()
    assert machine.look().fault
    monkeypatch.setattr(health, "XID_QUIET_SECONDS", 0.0)
    assert machine.look().fault == ""


def test_an_xid_that_nobody_described_is_taken_for_broken_hardware() -> None:
    assert xid_of(9999).kind is XidKind.HARDWARE
    assert {number for number, xid in XIDS.items() if xid.kind is XidKind.APPLICATION} >= {13, 31, 43, 45, 68, 109}


@pytest.mark.gpu
def test_real_gpus_can_be_looked_at() -> None:
    import pynvml

    from provider_agent.devices.nvidia import find_gpus

    gpus = find_gpus()
    if not gpus:
        pytest.skip("no NVIDIA GPU here")
    watch = GpuWatch([gpu.uuid for gpu in gpus], pynvml)
    assert watch.open()
    readings = watch.look()
    watch.close()
    assert all(reading.figures["temperature_celsius"] > 0 for reading in readings.values())
