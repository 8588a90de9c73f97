"""What a job asks of a node and of its devices' software: shared memory, CUDA, compute capability."""

from __future__ import annotations

from jobs.matching.exclusion_reasons import Why
from jobs.matching.explain import exclusions_of
from jobs.matching.fit import screen
from jobs.matching.fixes import find_fixes
from jobs.matching.snapshot import NodeRow
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


def test_cores_memory_and_disk_are_a_leases_share_and_each_has_its_fix() -> None:
    rows = fleet(node(1, groups=[gpus(4)], devices=4, cpus=32, ram_mib=40 * 1024, disk_mib=400 * 1024))
    has = demand(devices=2, cpus=16, ram_mib=20 * 1024, disk_mib=200 * 1024)
    assert screen(has, rows).slots
    for wanted, why, field, value in (
        (demand(devices=2, cpus=17), Why.CPUS, "resources.cpus", "16"),
        (demand(devices=2, ram_mib=20 * 1024 + 1), Why.RAM, "resources.ram", "20GiB"),
        (demand(devices=2, disk_mib=200 * 1024 + 1), Why.DISK, "resources.disk", "200GiB"),
    ):
        screened = screen(wanted, rows)
        assert screened.excluded == {why: 1}
        (fix,) = find_fixes(wanted, rows, screened.excluded)
        assert (fix.field, fix.value, fix.nodes) == (field, value, 1)


def versioned(number: int, capability: tuple[int, int], cuda: tuple[int, int]) -> NodeRow:
    return node(number, groups=[gpus(first=number * 100, compute_capability=capability, cuda=cuda)])


def test_a_device_has_at_least_the_capability_and_the_cuda_that_the_job_names() -> None:
    rows = fleet(versioned(1, (8, 9), (12, 4)), versioned(2, (9, 0), (11, 8)), versioned(3, (0, 0), (0, 0)))
    assert len(screen(demand(), rows).slots) == 3
    assert [slot.row for slot in screen(demand(compute_capability=(8, 9), cuda=(12, 4)), rows).slots] == [0]
    screened = screen(demand(compute_capability=(9, 0), cuda=(12, 4)), rows)
    assert screened.excluded == {Why.COMPUTE_CAPABILITY: 2, Why.CUDA: 1}


def test_ten_is_more_than_nine_of_a_version() -> None:
    assert screen(demand(compute_capability=(9, 0)), fleet(versioned(1, (10, 0), (13, 0)))).slots


def test_the_nearest_versions_are_offered_as_fixes() -> None:
    rows = fleet(versioned(1, (8, 0), (12, 4)), versioned(2, (8, 9), (12, 8)), versioned(3, (0, 0), (0, 0)))
    wanted = demand(compute_capability=(10, 0))
    (fix,) = find_fixes(wanted, rows, screen(wanted, rows).excluded)
    assert (fix.field, fix.value, fix.message) == (
        "resources.compute_capability",
        "8.9",
        "compute capability 8.9 adds 1 node",
    )
    wanted = demand(cuda=(13, 0))
    (fix,) = find_fixes(wanted, rows, screen(wanted, rows).excluded)
    assert (fix.field, fix.value) == ("resources.cuda", "12.8")
    unsaid = fleet(versioned(3, (0, 0), (0, 0)))
    assert find_fixes(wanted, unsaid, screen(wanted, unsaid).excluded) == []
