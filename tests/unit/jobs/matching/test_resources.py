"""What a job asks of a node beside its devices: shared memory, by the lease's share of it."""

from __future__ import annotations

from jobs.matching.exclusion_reasons import Why
from jobs.matching.explain import exclusions_of
from jobs.matching.fit import screen
from jobs.matching.fixes import find_fixes
from tests.unit.jobs.matching.fleets import demand, fleet, gpus, node


def test_a_lease_has_its_devices_share_of_the_shared_memory() -> None:
    two_of_four = node(1, groups=[gpus(4)], shm_mib=64 * 1024, devices=4)
    assert screen(demand(devices=2, shm_mib=32 * 1024), fleet(two_of_four)).slots
    wanted = demand(devices=2, shm_mib=32 * 1024 + 1)
    assert screen(wanted, fleet(two_of_four)).excluded == {Why.SHM: 1}


def test_a_sick_device_keeps_its_share() -> None:
    one_of_two = node(1, groups=[gpus(1)], shm_mib=1000, devices=2)
    assert screen(demand(shm_mib=501), fleet(one_of_two)).excluded == {Why.SHM: 1}


def test_a_node_whose_agent_does_not_say_is_left_out_of_jobs_that_ask_alone() -> None:
    silent = fleet(node(1))
    assert screen(demand(), silent).slots
    screened = screen(demand(shm_mib=1), silent)
    (exclusion,) = exclusions_of(demand(shm_mib=1), screened.excluded)
    assert exclusion.message == (
        "1 have less than 1MiB of /dev/shm for 1 of their devices, or an agent that does not say"
    )
    assert find_fixes(demand(shm_mib=1), silent, screened.excluded) == []


def test_the_fix_is_the_most_that_a_node_has() -> None:
    rows = fleet(
        node(1, shm_mib=4096, devices=1), node(2, groups=[gpus(first=900)], shm_mib=8192, devices=1), node(3, groups=[])
    )
    wanted = demand(shm_mib=9000)
    (fix,) = find_fixes(wanted, rows, screen(wanted, rows).excluded)
    assert (fix.field, fix.value, fix.message) == ("resources.shm", "8GiB", "8GiB of /dev/shm adds 1 node")
