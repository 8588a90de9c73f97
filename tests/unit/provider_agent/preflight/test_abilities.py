"""Preflight of disks, the internet and gangs: a failed requested ability is an error, any other is reported."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from provider_agent.preflight.abilities import DesiredSettings, check_disk_limit, check_egress, check_gangs
from provider_agent.system import capabilities, programs
from provider_agent.system.capabilities import BITS, NEEDED, lacking

CHECKS = (check_disk_limit, check_egress, check_gangs)
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="what root may, only root is shown")


@pytest.mark.parametrize("user", ["nobody", "souk-not-made-yet"])
def test_a_lesser_account_is_shown_what_is_missing_and_how_to_have_it(user: str) -> None:
    for check in CHECKS:
        found = check(DesiredSettings(user=user))
        assert found.verdict == "SKIP"
        assert f"the agent runs as {user}, not as root" in found.found
        assert "run the install line with --user root" in found.fix


def test_what_a_lesser_account_was_asked_for_must_be_fixed_but_holds_up_no_repair(tmp_path: Path) -> None:
    asked = DesiredSettings(user="nobody", egress="public", fabric_address="127.0.0.1")
    assert [check(asked).verdict for check in CHECKS] == ["SKIP", "FIX", "FIX"]
    (tmp_path / "config.json").write_text(json.dumps({"egress": "public", "fabric_address": "127.0.0.1"}))
    again = DesiredSettings(user="nobody").of_node(tmp_path)
    assert (again.egress, again.fabric_address) == ("public", "127.0.0.1")
    assert [check(again).verdict for check in CHECKS] == ["SKIP", "SKIP", "SKIP"]


@ROOT
def test_root_without_a_program_is_shown_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "SYSTEM_PATH", "/nonexistent")
    found = check_disk_limit(DesiredSettings())
    assert (found.verdict, found.fix) == ("FIX", "apt install e2fsprogs mount")
    assert check_egress(DesiredSettings(egress="public")).fix == "apt install iptables"
    assert check_egress(DesiredSettings()).verdict == "SKIP"
    gangs = check_gangs(DesiredSettings(fabric_address="127.0.0.1"))
    assert gangs.verdict == "FIX"
    assert gangs.fix.startswith("apt install iproute2 util-linux wireguard-tools")
    plain = check_gangs(DesiredSettings(fabric_address="127.0.0.1", fabric_privacy="plain"))
    assert plain.fix == "apt install iproute2 util-linux iptables"


@pytest.fixture
def may_not_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root as most containers have it."""
    held = sum(1 << bit for name, bit in BITS.items() if name != "CAP_SYS_ADMIN")
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nCapEff:\t{held:016x}\n")
    monkeypatch.setattr(capabilities, "STATUS", status)


@ROOT
def test_root_of_a_container_that_may_not_mount_is_reported(may_not_mount: None) -> None:
    assert lacking(NEEDED) == ["CAP_SYS_ADMIN"]
    found = check_disk_limit(DesiredSettings())
    assert found.verdict == "SKIP"
    assert "root has no CAP_SYS_ADMIN here (is this a container?)" in found.found


@ROOT
@pytest.mark.skipif(bool(programs.missing(["iptables"])), reason="without iptables no job is given the internet")
def test_root_that_may_not_mount_can_give_jobs_the_internet(may_not_mount: None) -> None:
    assert "PASS" in check_egress(DesiredSettings()).as_text()


@pytest.mark.parametrize(
    ("address", "finding"),
    [
        ("192.0.2.77", "192.0.2.77 is not one of this computer"),
        ("2001:db8::77", "2001:db8::77 is not one of this computer"),
        ("gpu1.example", "'gpu1.example' is no IP address"),
        ("", "jobs over several nodes"),
    ],
)
def test_an_address_that_no_interface_has_is_found(address: str, finding: str) -> None:
    found = check_gangs(DesiredSettings(user="nobody", fabric_address=address))
    assert finding in found.found
    assert found.verdict == ("FIX" if address else "SKIP")


def test_processes_need_none_of_it() -> None:
    assert {check(DesiredSettings(executor="process", user="nobody")).verdict for check in CHECKS} == {"SKIP"}
