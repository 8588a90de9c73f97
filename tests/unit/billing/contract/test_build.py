"""The committed build is that of the committed source, and what differs is found."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from billing.chain.contract import compiling
from tests.unit.billing.contract.chain import TOKENS, build

FOLDERS = [(compiling.SOURCES, compiling.BUILD), (TOKENS, TOKENS / "built")]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Sources and build, to change; there is no compiler."""

    def no_compiler() -> None:
        raise compiling.InstallError("there is no npm")

    monkeypatch.setattr(compiling, "install", no_compiler)
    monkeypatch.delenv("SOUK_NO_SKIPS", raising=False)
    shutil.copytree(compiling.SOURCES, tmp_path / "contracts")
    shutil.copytree(compiling.BUILD, tmp_path / "build")
    return tmp_path / "contracts", tmp_path / "build"


@pytest.mark.parametrize(("sources", "built"), FOLDERS, ids=["escrow", "tokens"])
def test_every_contract_has_the_build_of_its_source(sources: Path, built: Path) -> None:
    names = compiling.contract_names(sources)
    assert sorted(path.stem for path in built.glob("*.json")) == names
    for name in names:
        assert build(name)["sources"] == compiling.digests(sources, name)


def test_a_build_knows_what_it_is_made_of() -> None:
    made = build("GpuEscrow")
    pins = json.loads((compiling.SOURCES / "package.json").read_text())["dependencies"]
    assert set(made["sources"]) == {path.name for path in compiling.SOURCES.glob("*.sol")} - {"DevToken.sol"}
    assert made["compiler"].startswith(pins["solc"] + "+")
    assert made["openzeppelin"] == pins["@openzeppelin/contracts"]
    assert re.fullmatch(r"0x[0-9a-f]+", made["bytecode"])
    assert made["immutable_references"]


def test_the_pins_name_no_registry() -> None:
    for name in ("package.json", "package-lock.json", ".npmrc"):
        assert "://" not in re.sub(r'"url": "[^"]*"', "", (compiling.SOURCES / name).read_text())


def test_a_changed_source_is_found_without_a_compiler(
    copy: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    sources, built = copy
    assert compiling.check(sources, built) == 0
    assert "NOT RECOMPILED" in capsys.readouterr().err
    changed = sources / "EscrowFunds.sol"  # a part of the contract that has no build of its own
    changed.write_text(changed.read_text().replace("2_000", "9_000"))
    assert compiling.check(sources, built) == 1
    assert "GpuEscrow: the source changed" in capsys.readouterr().err


def test_a_missing_compiler_is_no_success_where_nothing_may_skip(
    copy: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOUK_NO_SKIPS", "1")
    assert compiling.check(*copy) == 1


def test_changed_bytes_are_found(
    copy: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources, built = copy
    products = [json.loads((built / f"{name}.json").read_text()) for name in ("DevToken", "GpuEscrow")]
    monkeypatch.setattr(compiling, "compile_contracts", lambda _: products)
    assert compiling.check(sources, built) == 0
    at = built / "GpuEscrow.json"
    at.write_text(at.read_text().replace("6080", "6081", 1))
    assert compiling.check(sources, built) == 1
    assert "GpuEscrow.json is not what its source compiles to" in capsys.readouterr().err


def test_every_error_and_event_is_one_that_a_test_reaches() -> None:
    tests = "".join(path.read_text() for path in sorted(Path(__file__).parent.glob("test_*.py")))
    own = (compiling.SOURCES / "IEscrow.sol").read_text()
    names = re.findall(r"^    (?:error|event) (\w+)\(", own, re.MULTILINE)
    assert len(names) > 40
    assert [name for name in names if f'"{name}"' not in tests] == []
