"""Every bad file is refused with exactly its mistakes, and never with anything but SpecErrors."""

from __future__ import annotations

import contextlib
import string
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.spec import Spec, SpecErrors, from_wire, parse
from tests.unit.jobs.spec.bad_files import BAD_FILES, GOOD, BadFile


def test_the_file_that_the_bad_ones_are_made_of_is_good() -> None:
    assert parse(GOOD).name == "a"


def test_the_table_is_as_long_as_promised_and_names_each_case_once() -> None:
    assert len(BAD_FILES) >= 40
    assert len({case.name for case in BAD_FILES}) == len(BAD_FILES)


@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case.name)
def test_bad_file_is_refused_with_exactly_its_mistakes(case: BadFile) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse(case.text)
    errors = caught.value.errors
    for error, expected in zip(errors, case.mistakes, strict=True):
        assert (error.line, error.path, error.nearest) == (expected.line, expected.path, expected.nearest), str(error)
        assert expected.message in error.message


@pytest.mark.parametrize("case", BAD_FILES, ids=lambda case: case.name)
def test_each_mistake_of_a_field_says_what_was_expected(case: BadFile) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse(case.text)
    assert all(error.expected for error in caught.value.errors if error.path and "given twice" not in error.message)


def test_json_that_is_no_spec_is_refused_without_lines() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    bodies: list[object] = [
        None,
        [],
        "x",
        3,
        {},
        {"kind": "train", "budget": {"max_total": float("nan")}},
        {"a": "x" * 300_000},
        deep,
    ]
    for body in bodies:
        with pytest.raises(SpecErrors) as caught:
            from_wire(body)
        assert all(error.line is None for error in caught.value.errors)


KEYS = [
    "kind",
    "name",
    "resources",
    "work",
    "budget",
    "train",
    "env",
    "command",
    "retry",
    "files",
    "secrets",
    "gpus",
    "x",
]
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(string.printable, max_size=8), st.dates()),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.sampled_from(KEYS), children, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8))
def test_no_mapping_whatever_raises_anything_but_spec_errors(body: dict[str, object]) -> None:
    attempts: list[Callable[[], Spec]] = [lambda: parse(yaml.safe_dump(body)), lambda: from_wire(body)]
    for attempt in attempts:
        with contextlib.suppress(SpecErrors):
            attempt()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(st.sampled_from("a:-[]{},&*!|>'\"%@`# \t\n\r?0~\\é\x00\u2028"), max_size=60))
def test_no_bytes_whatever_raise_anything_but_spec_errors(source: bytes | str) -> None:
    with pytest.raises(SpecErrors):
        parse(source)
