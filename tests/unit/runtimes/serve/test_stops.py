"""However a text is cut into pieces, it ends before its first stop string."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtimes.serve.engines.stops import StopFinder

LETTERS = st.text("ab", max_size=30)


@given(pieces=st.lists(LETTERS, max_size=10), stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_what_leaves_is_the_text_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    finder, left = StopFinder(stops), ""
    for piece in pieces:
        left += finder.feed(piece)
        assert not any(stop in left for stop in stops)
    found = finder.is_found
    left += finder.flush()
    whole = "".join(pieces)
    assert found == any(stop in whole for stop in stops)
    # The stop that is complete first, as the text comes, ends it: so is it where it comes letter by letter.
    if not found:
        assert left == whole
    else:
        assert whole.startswith(left)
        assert any(whole[len(left) :].startswith(stop) for stop in stops)


def test_nothing_is_held_back_without_need() -> None:
    finder = StopFinder(["END"])
    assert finder.feed("the answer E") == "the answer "
    assert finder.feed("ight") == "Eight"
