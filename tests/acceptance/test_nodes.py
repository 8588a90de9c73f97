"""Nodes unlike a pair of devices with everything installed: a rack that trains together, and a stranger's computer."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from examples.market import SOUK, Market, NodeOptions, Party, run, run_json
from tests.acceptance.customer import ENDS, TINY, launch, souk_of, wait_until

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
EXAMPLES = Path(__file__).parents[2] / "examples"
INSTALL_SECONDS = 600  # torch among it
LINK_SECONDS = 120  # the checks of both nodes, one after the other, may come first


def test_two_nodes_of_a_rack_train_one_model_together(market: Market, alice: Party, tmp_path: Path) -> None:
    provider = None
    for core in ("0", "1"):
        options = NodeOptions(devices=1, cores=core, region="rack", fabric_address="127.0.0.1")
        provider = market.add_node(f"rack-{core}", price="0.90", provider=provider, node=options)
    assert provider is not None
    wait_for_link(market, provider)
    resources = {"gpus": 1, "nodes": 2, "kind": "any", "isolation": "none", "region": "rack"}
    with souk_of(market, alice) as souk:
        job = launch(souk, TINY | {"resources": resources, "work": {"steps": 60}})
        ended = wait_until(souk, job, ENDS)
        assert ended.state == "completed", ended.message
        (attempt,) = ended.attempts
        assert {lease.node_name for lease in attempt.leases} == {"rack-0", "rack-1"}
    env = alice.env(market.server)
    run([SOUK, "download", str(job.job_id), "--into", str(tmp_path)], env)
    assert [path.stat().st_size > 0 for path in tmp_path.rglob("model.safetensors")] == [True], "written by one rank"
    bill = run_json([SOUK, "bill", str(job.job_id)], env)
    assert bill["verified"] is True
    charges = {line["node_name"]: line["charge_usd_micros"] for line in bill["bill"]["lines"]}
    assert set(charges) == {"rack-0", "rack-1"}
    assert all(charge > 0 for charge in charges.values())


def wait_for_link(market: Market, provider: Party) -> None:
    """Until both nodes have measured the link between them, which the server orders as soon as both are idle."""
    until, shown = time.monotonic() + LINK_SECONDS, []
    while time.monotonic() < until:
        shown = run_json([SOUK, "provider", "links"], provider.env(market.server))
        if [link["condition"] for link in shown] == ["good"]:
            assert shown[0]["round_trip_us"] > 0
            assert shown[0]["bandwidth_bytes_per_second"] > 10_000_000
            return
        time.sleep(1)
    raise AssertionError(f"the link was not measured in {LINK_SECONDS} s: {shown}")


def test_an_agent_installed_alone_builds_what_programs_need(market: Market, alice: Party, tmp_path: Path) -> None:
    options = NodeOptions(region="alone", runtime_python="")
    market.add_node("alone", price="0.40", node=options, seconds=INSTALL_SECONDS)
    # install.sh made the agent's environment; what programs need, the agent built beside it.
    python = market.prefix / "current" / "bin" / "python"
    look = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('django'))"
    absent = subprocess.run([python, "-c", look], capture_output=True, text=True, check=True)
    assert absent.stdout.split() == ["None", "None"], "an agent's machine is spared torch and Django"
    job_file = tmp_path / "own-script.yaml"
    spec = yaml.safe_load((EXAMPLES / "own-script.yaml").read_text())
    spec["resources"]["region"] = "alone"
    job_file.write_text(yaml.safe_dump(spec))
    shutil.copy(EXAMPLES / "own_script.py", tmp_path)
    run([SOUK, "launch", str(job_file), "--yes"], alice.env(market.server), seconds=300)  # its command is `torchrun`
    with souk_of(market, alice) as souk:
        (job,) = souk.jobs()
        assert job.state == "completed", job.message
        trained = launch(
            souk,
            TINY
            | {"resources": {"gpus": 1, "kind": "any", "isolation": "none", "region": "alone"}, "work": {"steps": 20}},
        )
        assert wait_until(souk, trained, ENDS).state == "completed"
