"""What the pages name is there: links, commands with their options, settings and defaults, paths, alerts, gas."""

from __future__ import annotations

import functools
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from pydantic import BaseModel

from jobs.client.cli import app as souk
from jobs.gateway.config import GatewayConfig
from jobs.spec.kinds.eval import EvalSection
from jobs.spec.kinds.serve import ServeSection
from jobs.spec.kinds.train import TrainSection
from jobs.spec.model import Budget, Checkpoint, JobFields, Payment, Resources, Retry, Work
from marketplace.config.commands.chain import app as chain
from marketplace.config.commands.gateway import app as gateway
from marketplace.config.commands.ledger import app as ledger
from marketplace.config.commands.up import app as up
from provider_agent.cli import app as souk_agent

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("*/README.md"))]
SETTINGS = ROOT / "marketplace/config/settings.py"
OPERATORS = ("docs/operator-guide.md", "docs/operator-money.md")
PROGRAMS = {("souk",): souk, ("souk", "up"): up, ("souk", "ledger"): ledger, ("souk", "chain"): chain}
PROGRAMS |= {("souk", "gateway"): gateway, ("souk-agent",): souk_agent}
OTHERS_LINKS = ("http://", "https://", "mailto:")


def prose(text: str) -> str:
    """A page without its blocks of code, in which brackets are no links."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: small letters, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ (.*)$", prose(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text())):
        if link.startswith(OTHERS_LINKS):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


def commands(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], set[str] | None]]:
    """Every command with its options; None for a group, whose options are its commands'."""
    names = getattr(command, "commands", {})
    options = {each for parameter in command.params for each in (*parameter.opts, *parameter.secondary_opts)}
    yield words, None if names else options | {"--help", "-h"}
    for name, found in names.items():
        yield from commands((*words, name), found)


KNOWN = dict(entry for words, program in PROGRAMS.items() for entry in commands(words, typer.main.get_command(program)))


def spoken(text: str) -> Iterator[str]:
    """Command lines in code: between backticks, or lines of a block, without comments; `\\` goes on."""
    for block in re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield re.sub(r"(^|\s)#.*", "", line).removeprefix("$ ").replace(".venv/bin/", "")
    for span in re.findall(r"`([^`]+)`", prose(text)):
        yield " ".join(span.split())


def mistake_in(line: str) -> str | None:
    """What a command line of ours names that is not there."""
    found = re.match(r"(?:[A-Z_]+=\S+ )*(souk(?:-agent)?)(?= |$)(.*)", line.strip())
    if found is None:
        return None
    try:
        rest = shlex.split(found.group(2).replace("…", ""))
    except ValueError:
        rest = found.group(2).split()
    words: tuple[str, ...] = (found.group(1),)
    while rest and (*words, rest[0].rstrip(",")) in KNOWN:
        words = (*words, rest.pop(0).rstrip(","))
    options = KNOWN[words]
    if options is None:  # a group: what follows must be one of its commands, or prose that names the group
        return None if not rest or not re.fullmatch(r"[a-z][a-z-]+", rest[0]) else f"{' '.join(words)} has no {rest[0]}"
    for word in rest:
        if word in {"--", "|", "||", "&&", ">", "<"}:
            break
        option = word.strip("[],;").split("=")[0]
        if option.startswith("-") and option not in options:
            return f"{' '.join(words)} has no option {option}"
    return None


def rows(page: str, first: str) -> dict[str, list[str]]:
    """Rows of every table whose first heading is this: first cell -> the other cells."""
    found: dict[str, list[str]] = {}
    is_in = False
    for line in (ROOT / page).read_text().splitlines():
        is_in = line.startswith(f"| {first} |") or (is_in and line.startswith("|"))
        if is_in:
            name, *others = (cell.strip() for cell in line.strip("|").split(" | "))
            found[name] = others
    return {name: others for name, others in found.items() if name != first and not name.startswith("---")}


def described_settings() -> dict[str, str]:
    """Every setting that the operators' tables name, with the cell of its default; `_MAX` takes another's beginning."""
    found: dict[str, str] = {}
    for page in OPERATORS:
        for names, others in rows(page, "Variable").items():
            whole = ""
            for name in re.findall(r"`([A-Z0-9_]+)`", names):
                whole = name if not name.startswith("_") else whole
                begins = whole.rsplit("_", 1)[0] if name.startswith("_") else ""
                found[begins + name] = others[0]
    return found


def read_settings() -> dict[str, str]:
    """Every variable that the settings read, with its default as far as that is one number."""
    text = SETTINGS.read_text()
    found = dict.fromkeys(re.findall(r'(?:environ\.get|_required)\("([A-Z0-9_]+)"', text), "")
    for name, number in re.findall(r'environ\.get\("([A-Z0-9_]+)", "(\d+)"\)', text):
        found[name] = number
    for name, product in re.findall(r'environ\.get\("([A-Z0-9_]+)", str\(([\d* ]+)\)\)', text):
        left, _, right = product.partition("*")
        found[name] = str(int(left) * int(right))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert dead_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_and_option_that_a_page_shows_is_there(page: Path) -> None:
    assert [found for line in spoken(page.read_text()) if (found := mistake_in(line))] == []


def test_a_command_or_option_that_is_not_there_would_be_found() -> None:
    assert mistake_in("souk lanch job.yaml") == "souk has no lanch"
    assert mistake_in("souk escrow repay JOB") == "souk escrow has no repay"
    assert mistake_in("souk plan job.yaml --cheap | head") == "souk plan has no option --cheap"
    assert mistake_in("SOUK_RPC_URL=x souk chain pause USDC --prnt") == "souk chain pause has no option --prnt"
    assert mistake_in("souk provider add-node -- --price 1.20") is None


def test_every_command_is_shown_on_some_page() -> None:
    shown = {line for page in PAGES for line in spoken(page.read_text())}
    left = [words for words, options in KNOWN.items() if options is not None and len(words) > 1]
    assert [" ".join(each) for each in left if not any(line.startswith(" ".join(each)) for line in shown)] == []


@pytest.mark.parametrize(
    ("heading", "section"),
    [("Top level", JobFields), ("train", TrainSection), ("eval", EvalSection)]
    + [(each.__name__.lower(), each) for each in (Resources, Work, Budget, Payment, Checkpoint, Retry)],
)
def test_every_field_of_a_job_file_is_on_its_page(heading: str, section: type[BaseModel]) -> None:
    page = (ROOT / "docs/job-file.md").read_text()
    text = re.split(r"^## ", page[page.index(f"## {heading}\n") + 3 :], maxsplit=1, flags=re.MULTILINE)[0]
    fields = {field.alias or name for name, field in section.model_fields.items()}
    assert {name for name in fields if f"`{name}`" not in text} == set()


def test_every_field_of_what_is_served_is_on_the_job_files_page() -> None:
    page = (ROOT / "docs/job-file.md").read_text()
    text = re.split(r"^## ", page[page.index("## serve\n") + 3 :], maxsplit=1, flags=re.MULTILINE)[0]
    wanted = set()
    for name, field in ServeSection.model_fields.items():
        inner = getattr(field.annotation, "model_fields", {})
        wanted |= {f"{field.alias or name}.{each.alias or key}" for key, each in inner.items()} or {field.alias or name}
    assert {name for name in wanted if f"`{name}`" not in text} == set()


def test_the_operators_pages_list_every_setting_of_a_gateway() -> None:
    documented: dict[str, str] = {}
    for names, others in rows("docs/operator-guide.md", "Gateway variable").items():
        words = [word if word[0] != "_" else f"SOUK_GATEWAY{word}" for word in re.findall(r"`([A-Z_]+)`", names)]
        defaults = others[0].split(", ")
        documented |= dict(zip(words, defaults if len(defaults) == len(words) else defaults * len(words), strict=True))
    defined = {f"SOUK_GATEWAY_{each.name.upper()}": each.default for each in fields(GatewayConfig)}
    assert set(documented) == set(defined)
    assert {name: documented[name] for name, each in defined.items() if isinstance(each, int)} == {
        name: str(each) for name, each in defined.items() if isinstance(each, int)
    }


def test_the_operators_pages_list_every_setting_and_no_other() -> None:
    assert set(described_settings()) == set(read_settings())


def test_defaults_in_the_operators_pages_are_the_codes() -> None:
    described, read = described_settings(), read_settings()
    assert {name: number for name, number in read.items() if number} == {
        name: number for name, number in read.items() if number in re.findall(r"\d+", described.get(name, ""))
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_the_api_that_a_page_names_is_published(page: Path) -> None:
    named = re.findall(r"\b(GET|POST|PUT|PATCH|DELETE)\s+(/[A-Za-z0-9/_-]+)", page.read_text())
    assert {(verb, path.removeprefix("/api/v1").rstrip("/")) for verb, path in named} - published() == set()


@functools.cache
def published() -> frozenset[tuple[str, str]]:
    """Method and path of everything in the API's snapshot, with ID for what is between braces."""
    schema = yaml.safe_load((ROOT / "docs/openapi.yaml").read_text())
    return frozenset(
        (method.upper(), re.sub(r"\{[^}]+\}", "ID", path).removeprefix("/api/v1").rstrip("/"))
        for path, methods in schema["paths"].items()
        for method in methods
    )


def test_every_kind_of_alert_says_what_to_do() -> None:
    raised = set()
    for path in (ROOT / "billing").rglob("*.py"):
        raised |= set(re.findall(r'raise_once\((?:[^()]|\([^()]*\))*?kind="(\w+)"', path.read_text()))
    for path in (ROOT / "jobs").rglob("*.py"):
        raised |= set(re.findall(r'^(?:\w+_)?ALERT: Final = "(\w+)"', path.read_text(), re.MULTILINE))
    assert raised
    assert raised == {name.strip("`") for name in rows("docs/operator-money.md", "Kind")}


def test_gas_in_the_contracts_page_is_what_was_measured() -> None:
    measured = re.findall(r"\d+", json.dumps(json.loads((ROOT / "benchmarks/results/gas.json").read_text())["figures"]))
    page = (ROOT / "docs/escrow.md").read_text()
    figures = re.findall(r"\d{1,3}(?:,\d{3})+", page[page.index("## Gas") : page.index("## Deploying it")])
    assert figures
    assert [each for each in figures if each.replace(",", "") not in measured and each != "10,000"] == []
