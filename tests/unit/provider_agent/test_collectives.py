"""What NCCL and gloo are told of a gang's network follows from what is known of it, and yields to the customer."""

from __future__ import annotations

from typing import Any

import pytest

from provider_agent.overlay import collectives
from provider_agent.overlay.collectives import collective_environment, sees_infiniband, slowest_link

GBIT = 125_000_000


def environment(**changes: Any) -> dict[str, str]:
    """Of a gang of two in an overlay, with changes."""
    known: dict[str, Any] = {"nodes": 2, "interface": "souk0", "address": "10.83.0.1", "interfaces": ["lo", "souk0"]}
    return collective_environment(
        **{**known, "has_infiniband": False, "bytes_per_second": None, "theirs": {}, **changes}
    )


def seen(address: str, sent: Any, received: Any, *, is_reached: Any = True) -> dict[str, Any]:
    """One record of a probe."""
    speeds = {"sent_bytes_per_second": sent, "received_bytes_per_second": received}
    return {"address": address, "is_reached": is_reached, **speeds}


def test_a_gang_is_told_its_interface_and_that_there_is_no_infiniband() -> None:
    assert environment() == {
        "GLOO_SOCKET_IFNAME": "souk0",
        "NCCL_SOCKET_IFNAME": "souk0",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_IB_DISABLE": "1",
    }


def test_a_program_that_is_alone_is_told_loopback_and_nothing_of_nccl() -> None:
    assert environment(nodes=1, interface="lo", address="127.0.0.1") == {"GLOO_SOCKET_IFNAME": "lo"}


def test_an_interface_whose_name_begins_another_is_named_exactly() -> None:
    found = environment(interface="eth1", interfaces=["lo", "eth1", "eth10"])
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("=eth1", "eth1")


def test_infiniband_stays_on_where_there_is_some() -> None:
    assert "NCCL_IB_DISABLE" not in environment(has_infiniband=True)


def test_an_address_that_is_not_ipv4_names_no_family() -> None:
    assert "NCCL_SOCKET_FAMILY" not in environment(address="fd00::1")


def test_an_interface_that_was_not_found_is_not_named() -> None:
    assert environment(interface="") == {"NCCL_IB_DISABLE": "1"}


@pytest.mark.parametrize(
    ("gbit", "threads", "sockets"), [(1, None, None), (9.9, None, None), (10, "2", "2"), (20, "4", "4"), (90, "4", "4")]
)
def test_fast_links_get_threads_and_sockets(gbit: float, threads: str | None, sockets: str | None) -> None:
    found = environment(bytes_per_second=int(gbit * GBIT))
    assert (found.get("NCCL_SOCKET_NTHREADS"), found.get("NCCL_NSOCKS_PERTHREAD")) == (threads, sockets)
    assert int(threads or 1) * int(sockets or 1) <= 64, "the most that NCCL takes"


@pytest.mark.parametrize("name", collectives.SOCKETS)
def test_who_sets_one_of_two_bounded_numbers_gets_neither(name: str) -> None:
    found = environment(bytes_per_second=90 * GBIT, theirs={name: "16"})
    assert not found.keys() & set(collectives.SOCKETS)


def test_the_slowest_direction_of_the_slowest_link_counts() -> None:
    links = {"a": seen("10.0.0.1", 900, 800), "b": seen("10.0.0.2", 700, 1000), "c": seen("10.0.0.3", 1, 1)}
    assert slowest_link(links, ["10.0.0.1", "10.0.0.2"]) == 700


@pytest.mark.parametrize(
    "record",
    [
        seen("10.0.0.1", None, 800),
        seen("10.0.0.1", "900", 800),
        seen("10.0.0.1", True, 800),
        seen("10.0.0.1", -1, 800),
        seen("10.0.0.1", 900, 800, is_reached=False),
        seen("10.0.0.9", 900, 800),
        {},
    ],
)
def test_a_link_without_a_sound_record_counts_as_not_measured(record: dict[str, Any]) -> None:
    assert slowest_link({"a": record}, ["10.0.0.1"]) is None


def test_nothing_is_measured_of_nobody() -> None:
    assert slowest_link({"a": seen("10.0.0.1", 900, 800)}, []) is None


def test_a_container_sees_no_infiniband_and_a_process_what_the_node_has(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectives, "INFINIBAND", tmp_path / "infiniband")
    assert not sees_infiniband(is_isolated=False)
    (tmp_path / "infiniband" / "mlx5_0").mkdir(parents=True)
    assert sees_infiniband(is_isolated=False)
    assert not sees_infiniband(is_isolated=True)
