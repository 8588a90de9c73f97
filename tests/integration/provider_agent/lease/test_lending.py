"""Folders that a provider lends: by label, and only the label leaves the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from provider_agent.cli import _parse_lend, _refuse_sharing_our_data
from provider_agent.config import AgentSettings
from provider_agent.errors import BadConfig
from provider_agent.protocol import AttemptState, OfferTerms, Reason
from tests.integration.provider_agent.conftest import Bob, eventually

READ = "import os; print(open(os.environ['SOUK_LENT_DIR'] + '/corpus/text').read())"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "bobs-private-place"
    folder.mkdir()
    (folder / "text").write_text("once upon a time")
    return folder


def test_program_reads_the_folder_that_its_job_names(bob: Bob, corpus: Path) -> None:
    bob.enrol(lend={"corpus": str(corpus), "other": str(corpus)})
    bob.start()
    lease = bob.server.give(bob.assignment("python3", "-c", READ, lent=["corpus"]))
    eventually(lambda: lease.report and lease.report.state is AttemptState.SUCCEEDED, "success")
    eventually(lambda: lease.logs == b"once upon a time\n", "the log")


def test_labels_leave_the_machine_and_paths_do_not(bob: Bob, corpus: Path) -> None:
    bob.enrol(lend={"corpus": str(corpus), "gone": str(corpus / "gone")})
    assert bob.server.enrolled.facts.lent == ["corpus"]
    assert "bobs-private-place" not in bob.server.enrolled.model_dump_json()


def test_folder_that_is_not_lent_ends_the_attempt_by_the_nodes_fault(bob: Bob, corpus: Path) -> None:
    bob.enrol(lend={"corpus": str(corpus)})
    bob.start()
    lease = bob.server.give(bob.assignment("true", lent=["corpus", "weights"]))
    eventually(lambda: lease.report and lease.report.state is AttemptState.FAILED, "the failure")
    assert lease.report.reason is Reason.EXECUTOR_FAILED
    assert lease.report.message == "This node does not share the host folders weights."


def test_folder_with_the_agents_keys_is_not_lent(bob: Bob, tmp_path: Path) -> None:
    for path in (tmp_path, bob.folder.root, bob.folder.leases):
        settings = AgentSettings(
            name="bob", executor="process", offer=OfferTerms(price_usd_micros_per_device_hour=1), lend={"all": path}
        )
        with pytest.raises(BadConfig, match="own data"):
            _refuse_sharing_our_data(settings, bob.folder)


def test_lent_folder_is_named_as_it_lies_and_must_be_there(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(corpus)
    assert _parse_lend([f"corpus={tmp_path / 'link'}"]) == {"corpus": str(corpus)}
    for wrong in ("corpus", f"corpus={corpus / 'text'}", f"={corpus}"):
        with pytest.raises(BadConfig, match="LABEL=FOLDER"):
            _parse_lend([wrong])
    with pytest.raises(BadConfig, match="twice"):
        _parse_lend([f"a={corpus}", f"a={corpus}"])
