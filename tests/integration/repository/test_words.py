"""Words that were given up stay out: docs/glossary.md has those that took their place."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[3]
GIVEN_UP: Final = {
    "porter": "agent context",
    "desk": "endpoint queue, session, or terminal",
    "patrol": "disconnect monitor",
    "ghosts?": "orphan container",
    "hurry(?:ing)?|hurries|hurried": "replace by fee, rebroadcast",
    "tending": "confirmation: the state that is handled",
    "redoing": "retry",
    "t(?:ake|akes|aking|aken|ook)[ _-]back": "roll back, revoke, withdraw",
    "takes? it back": "roll back, revoke, withdraw",
    "g(?:ive|ives|ave|iving)[ _-]way": "stop superseded leases",
    "mend(?:s|ed|ing)?": "fix",
    "heard": "received",
    "wish(?:es|ed)?": "desired settings, request",
    "dial-out": "connection, tunnel",
    "newcomers?": "install command; new node, new user",
    "quiet machine": "idle machine",
    "stand-ins?": "fake, test double",
}
GIVEN_UP_IN_PAGES: Final = {
    "houses?|rooms?|floors?|roof": "layer, package, module; minimum version",
    "doors?": "entry point, endpoint, listener",
    "stor(?:y|ies)": "lifecycle, run",
    "(?:is|are|was|were|be|been) told": "gets, receives, is offered; or name who reports",
    "what was had": "what it has",
}
# Where a word stays, and why: a file or folder, the part of its line that excuses it, the reason.
ALLOWED: Final = (
    ("CHANGELOG.md", "", "the entries of past versions name things as they were called"),
    ("tests/integration/repository/test_words.py", "", "it lists the words"),
    ("jobs/client/commands/endpoints.py", "take-back", "the old name of `souk rollback`, for one version"),
    ("jobs/client/sdk.py", "take[-_]back", "the old name of Souk.rollback and of the API's path, for one version"),
    ("docs/cli.md", "souk take-back", "the old name of `souk rollback`, for one version"),
    ("tests/unit/jobs/client/test_rollback.py", "take[-_]back", "it tests the old names"),
    ("docs/glossary.md", "nobody is", "it says which words we do not use"),
    ("", "ghosts_killed", "a stored column, a key of agents' messages, and a metric's old name, for one version"),
    ("", "chain_tending", "a stored kind of alert"),
    ("jobs/api/endpoints.py", "TAKE_BACK_DEPRECATED|endpoint_take_back", "the API's old path, for one version"),
    ("jobs/urls.py", "take-back", "the API's old path, for one version"),
    ("tests/integration/config/access/table.py", "take-back", "the API's old path, for one version"),
    ("jobs/endpoints/errors.py", "nothing_to_take_back", "a public error code"),
    ("jobs/models/serving.py", "db_column", "a stored column"),
    ("jobs/states.py", "ROLLED_BACK_FORMERLY", "a stored state, until no row has it"),
    ("marketplace/portal/chat", "heard_at", "a stored column"),
    ("tests/integration/billing/whole/", "take_back_expired", "a rule of the model: names of rules steer its choices"),
    ("tests/integration/jobs/serving/test_invalid_deploys.py", "/take-back", "it tests the API's old path"),
    ("tests/integration/jobs/serving/test_rollback_api.py", "take[-_]back|taken_back", "it tests the old names"),
    ("tests/integration/portal/chat/test_talking.py", "heard_at", "a stored column"),
)


def tracked() -> list[Path]:
    """Every module and page that is committed or about to be, without migrations: those are never edited."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = sorted(set(listed.stdout.split()))
    return [Path(path) for path in paths if "/migrations/" not in path and (ROOT / path).exists()]


def compiled(words: dict[str, str]) -> re.Pattern[str]:
    """The words alone or as parts of a name, such as `take_back` or `_desk`; not within another, such as `reporter`."""
    return re.compile(rf"(?<![a-z])(?:{'|'.join(words)})(?![a-z])", re.IGNORECASE)


IN_ALL: Final = compiled(GIVEN_UP)
# The same within a name of several words, such as `AgentPorter`, where a letter stands before or after.
CAPITALISED: Final = [part[0].upper() + part[1:] for word in GIVEN_UP for part in re.split(r"\|(?![^(]*\))", word)]
IN_CLASS_NAMES: Final = re.compile(rf"(?:{'|'.join(CAPITALISED)})(?![a-z])")
IN_PAGES: Final = compiled(GIVEN_UP_IN_PAGES)
TEST_NAME: Final = re.compile(r"`test_\w+`")  # a page names a test as it is called; the test's own file is read, too


def is_allowed(path: str, line: str) -> bool:
    return any(path.startswith(place) and re.search(part, line) for place, part, _ in ALLOWED)


def prose(text: str) -> str:
    """A page whose code is blank: names, paths and commands are the code's own; lines stay where they are."""
    blank = re.sub(r"```.*?```", lambda block: "\n" * block.group().count("\n"), text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", blank)


def found_in(path: str, text: str) -> Iterator[str]:
    """Each line with a word that was given up, as "path:line: word"."""
    lines = text.splitlines()
    pages = prose(text).splitlines() if path.endswith(".md") else [""] * len(lines)
    for number, (line, page) in enumerate(zip(lines, pages, strict=False), 1):
        named = TEST_NAME.sub("", line) if path.endswith(".md") else line
        words = [*IN_ALL.findall(named), *IN_CLASS_NAMES.findall(named), *IN_PAGES.findall(page)]
        if words and not is_allowed(path, line):
            yield from (f"{path}:{number}: {word}" for word in words)


def test_words_that_were_given_up_are_in_no_module_and_no_page() -> None:
    found = [each for path in map(str, tracked()) for each in found_in(path, (ROOT / path).read_text())]
    assert found == []


def test_every_allowed_place_still_needs_its_allowance() -> None:
    idle = []
    for place, part, reason in ALLOWED:
        texts = [(ROOT / path).read_text() for path in map(str, tracked()) if path.startswith(place)]
        lines = [line for text in texts for line in text.splitlines()]
        if not any(re.search(part, line) and (IN_ALL.search(line) or IN_PAGES.search(line)) for line in lines):
            idle.append(f"{place}: {reason}")
    assert idle == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("jobs/gateway/desk.py", "self._desk = Desk()"),
        ("billing/api/payouts.py", "class WishSerializer(StrictSerializer):"),
        ("provider_agent/context.py", "class AgentPorter:"),
        ("jobs/endpoints/versions.py", "versions.take_back(endpoint_id)"),
        ("docs/serving.md", "The version is taken back."),
        ("README.md", "a map of the house"),
        ("SECURITY.md", "Four doors are new."),
        ("docs/payouts.md", "All owners are told by mail."),
        ("benchmarks/README.md", "on a quiet machine"),
    ],
)
def test_a_word_that_comes_back_would_be_found(path: str, line: str) -> None:
    assert list(found_in(path, line))


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("jobs/client/errors.py", "raise ImportError from reporter, exporter"),
        ("billing/money.py", "pretending, extending and attending to amendments"),
        ("docs/operator-guide.md", "`SOUK_NODE_FLOORS` and tests/unit/`house`"),
        ("marketplace/nodes/floors.py", "floor = rooms = 1"),
    ],
)
def test_other_words_and_names_in_code_are_no_false_alarm(path: str, line: str) -> None:
    assert not list(found_in(path, line))
