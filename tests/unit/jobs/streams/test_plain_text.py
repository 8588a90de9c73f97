"""What programs print, made safe to show."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.running.plain_text import HELD_BYTES_MAX, clean, held_back

PIECES = [
    b"a",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x1b",
    b"[",
    b"]",
    b"31m",
    b"\x07",
    b"\\",
    b"\x1b[2J",
    b"\x1b]0;t\x07",
    b"P",
    b";",
]
PIECES += ["é".encode(), "م".encode(), "😀".encode(), b"\xff", b"\xc2", b"\x9b", b"\x00", b"?", b"P", b";"]
NASTY = st.lists(st.sampled_from(PIECES), max_size=60).map(b"".join)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b[2J\x1b[H\x1b[?25lx", "x"),
        (b"\x1b]0;title\x07x", "x"),
        (b"\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPq...\x1b\\x", "x"),
        (b"\x1b(Bx\x1bc", "x"),
        (b"10%\r20%\r\n", "10%\n20%\n"),
        (b"bell\x07 null\x00 back\x08", "bell null back"),
        (b"\xc2\x9b31mC1", "31mC1"),
        ("\u202eright to left\u2066".encode(), "right to left"),
        (b"broken \xff\xfe", "broken ��"),
        ("سلام ۱۲۳ 😀".encode(), "سلام ۱۲۳ 😀"),
        (b"\x1b]never closed", "never closed"),
    ],
)
def test_a_terminal_is_given_nothing_to_obey(raw, text):
    assert clean(raw) == text


@given(NASTY)
def test_no_control_character_survives(raw):
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", clean(raw))


@given(NASTY, st.integers(0, 200))
def test_a_cut_shows_the_same_as_the_whole(raw, cut):
    """Reading in two pages, the first without what is held back, gives the text of one page."""
    first = raw[:cut]
    kept = first[: len(first) - held_back(first)]
    assert clean(kept) + clean(raw[len(kept) :]) == clean(raw)


@given(NASTY)
def test_little_is_held_back(raw):
    assert 0 <= held_back(raw) <= min(len(raw), HELD_BYTES_MAX)


@pytest.mark.timeout(60)  # squared in its length it would take hours
def test_a_long_log_of_open_escapes_is_cleaned_in_linear_time():
    for piece in (b"\x1b]", b"\x1b[", b"\x1b[0;", b"\x1bP" + b"a" * 250, b"\x1b"):
        raw = (piece * 262_144)[:262_144]
        assert "\x1b" not in clean(raw)
        assert held_back(raw) <= HELD_BYTES_MAX
