"""A model's text becomes HTML that holds only what the renderer made."""

from __future__ import annotations

import re
from html import unescape

import jinja2
from hypothesis import given
from hypothesis import strategies as st

from marketplace.portal.chat.conversations import plain_text
from marketplace.portal.chat.markup import render
from runtimes.serve.weights import PLAIN_TEMPLATE

MADE = re.compile(r"</?(?:p|ul|li|pre|code|strong)>|<br>")
NASTY = st.text(st.sampled_from("<>&\"'`*#-1. \n\tab/=;"), max_size=200)


@given(NASTY)
def test_no_character_of_the_text_becomes_markup(text: str) -> None:
    rest = MADE.sub("", render(text))
    assert "<" not in rest
    assert ">" not in rest
    assert '"' not in rest
    assert "'" not in rest


@given(NASTY)
def test_every_word_is_still_there(text: str) -> None:
    shown = unescape(MADE.sub(" ", render(text)))
    fences = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("```"))
    for letter in "ab=;/":
        assert shown.count(letter) == fences.count(letter)


def test_code_blocks_paragraphs_lists_and_bold_words_are_shown() -> None:
    text = "Hello **you**\n\n- one\n- `two`\n\n```python\nif a < b:\n    pass\n```\nEnd"
    assert render(text) == (
        "<p>Hello <strong>you</strong></p><ul><li>one</li><li><code>two</code></li></ul>"
        "<pre><code>if a &lt; b:\n    pass</code></pre><p>End</p>"
    )


@given(
    st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": st.text()}),
        max_size=6,
    )
)
def test_datasets_are_written_in_the_template_of_models_without_one(turns: list[dict[str, str]]) -> None:
    template = jinja2.Template(PLAIN_TEMPLATE.read_text(), trim_blocks=True, lstrip_blocks=True)
    assert plain_text(turns) == template.render(messages=turns)
