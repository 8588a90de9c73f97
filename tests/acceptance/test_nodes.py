"""A node unlike a pair of devices with everything installed: a stranger's computer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from examples.market import SOUK, Market, NodeOptions, Party, run
from tests.acceptance.customer import ENDS, TINY, launch, souk_of, wait_until
from tests.wheels import PIP_VARIABLES

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
EXAMPLES = Path(__file__).parents[2] / "examples"
INSTALL_SECONDS = 600  # torch among it


@pytest.mark.soak  # fetches torch
def test_an_agent_installed_alone_builds_what_programs_need(
    market: Market, alice: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in PIP_VARIABLES:  # that folder has what the agent needs, not what programs do
        monkeypatch.delenv(variable, raising=False)
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
