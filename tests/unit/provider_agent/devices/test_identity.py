"""The kernel's lists as a second witness; the library and the file system are faked at their boundary."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from provider_agent.devices.identity import identity_of, kernel_gpus
from tests.unit.provider_agent.devices.nvml import NvmlError, fake_nvml


def plant(root: Path, *, proc: bool = True) -> None:
    """A machine with one H100, a network card, and a card of another vendor."""
    for place, vendor, kind in (
        ("0000:3b:00.0", "0x10de", "0x030200"),
        ("0000:01:00.0", "0x10de", "0x020000"),
        ("0000:02:00.0", "0x1002", "0x030000"),
    ):
        folder = root / "sys/bus/pci/devices" / place
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
    if proc:
        folder = root / "proc/driver/nvidia/gpus/0000:3b:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 120\n")


def card(bus: str) -> SimpleNamespace:
    return fake_nvml(
        1, nvmlDeviceGetPciInfo=lambda handle: SimpleNamespace(busId=bus), nvmlDeviceGetSerial=lambda handle: b"165"
    )


def test_card_that_the_kernel_lists_is_named_by_it(tmp_path: Path) -> None:
    plant(tmp_path)
    assert kernel_gpus(tmp_path) == {"0000:3b:00.0": "NVIDIA H100 80GB HBM3"}
    assert identity_of(card("00000000:3B:00.0"), 0, root=tmp_path) == {
        "pci_bus_id": "0000:3b:00.0",
        "serial": "165",
        "kernel": "NVIDIA H100 80GB HBM3",
    }


def test_card_that_only_the_library_knows_is_missing(tmp_path: Path) -> None:
    plant(tmp_path)
    assert identity_of(card("00000000:5E:00.0"), 0, root=tmp_path)["kernel"] == "missing"


def test_bus_alone_is_a_witness_where_the_driver_hides_its_list(tmp_path: Path) -> None:
    plant(tmp_path, proc=False)
    assert identity_of(card("0000:3b:00.0"), 0, root=tmp_path)["kernel"] == "listed"


def test_nothing_is_reported_of_what_cannot_be_known(tmp_path: Path) -> None:
    def hidden(handle: int) -> str:
        raise NvmlError("not supported")

    nvml = fake_nvml(1, nvmlDeviceGetSerial=hidden)
    assert identity_of(nvml, 0, root=tmp_path) == {"pci_bus_id": None, "serial": None}
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").touch()
    assert "kernel" not in identity_of(card("0000:3b:00.0"), 0, root=tmp_path)
