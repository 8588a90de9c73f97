"""A model's text as HTML in which nothing is HTML but what is made here: paragraphs, code blocks, code, bold words.

Every character of the text is escaped before any tag is put around it, and no tag carries anything of the text: there
are no links, no pictures and no attributes, so that nothing that a model (or the author of its prompt) writes can run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

FENCE: Final = "```"
HEADING: Final = re.compile(r"#{1,6} +(.+)")
ITEM: Final = re.compile(r"(?:[-*]|\d{1,3}[.)]) +(.+)")
# On escaped text: neither a backtick nor an asterisk is ever part of an entity.
CODE: Final = re.compile(r"`([^`\n]+)`")
BOLD: Final = re.compile(r"\*\*([^*\n]+)\*\*")


def render(text: str) -> SafeString:
    """The text as HTML; whatever is in it, it is shown and not obeyed."""
    return mark_safe("".join(_blocks(text)))  # noqa: S308  everything is escaped in _inline and _code


def _blocks(text: str) -> Iterator[str]:
    lines: list[str] = []
    code: list[str] | None = None
    for line in text.replace("\r\n", "\n").split("\n"):
        is_fence = line.lstrip().startswith(FENCE)
        if code is not None:
            if is_fence:
                yield _code(code)
                code = None
            else:
                code.append(line)
        elif is_fence:
            yield from _prose(lines)
            lines, code = [], []
        else:
            lines.append(line)
    yield from _prose(lines)
    if code is not None:  # cut off within a block
        yield _code(code)


def _prose(lines: list[str]) -> Iterator[str]:
    """Paragraphs, headings and lists; what belongs together is in neighbouring lines."""
    paragraph: list[str] = []
    items: list[str] = []
    for line in [*lines, ""]:
        heading, item = HEADING.fullmatch(line.strip()), ITEM.fullmatch(line.strip())
        if paragraph and (heading or item or not line.strip()):
            yield f"<p>{'<br>'.join(paragraph)}</p>"
            paragraph = []
        if items and not item:
            yield f"<ul>{''.join(items)}</ul>"
            items = []
        if heading:
            yield f"<p><strong>{_inline(heading[1])}</strong></p>"
        elif item:
            number = "" if line.strip()[0] in "-*" else f"{escape(line.strip().split(' ')[0])} "
            items.append(f"<li>{number}{_inline(item[1])}</li>")
        elif line.strip():
            paragraph.append(_inline(line))


def _inline(text: str) -> str:
    parts = CODE.split(str(escape(text)))
    return "".join(
        f"<code>{part}</code>" if at % 2 else BOLD.sub(r"<strong>\1</strong>", part) for at, part in enumerate(parts)
    )


def _code(lines: list[str]) -> str:
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"
