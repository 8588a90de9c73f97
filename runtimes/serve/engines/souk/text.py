"""Text to tokens and back: prompts, chats, and answers as they grow, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from runtimes.serve.engines.souk.errors import BadRequest

WINDOW_TOKENS: Final = 6  # decoded again with each new token: a character may need several
_UNFINISHED: Final = "\ufffd"


class Texts:
    """The tokenizer of one model."""

    def __init__(self, tokenizer: Any, template: str | None = None, end_ids: frozenset[int] = frozenset()) -> None:
        self._tokenizer = tokenizer
        self._template = template  # over the tokenizer's own, of which it may have several by name
        end = tokenizer.eos_token_id
        self.end_ids = end_ids | ({end} if end is not None else set())
        self.can_chat = bool(template or getattr(tokenizer, "chat_template", None))
        self.vocabulary = len(tokenizer)

    def read(self, prompt: str) -> list[int]:
        """A prompt's tokens, with what the model wants before it."""
        return list(self._tokenizer(prompt)["input_ids"])

    def read_chat(self, messages: Sequence[dict[str, Any]], *, goes_on: bool) -> list[int]:
        """A conversation's tokens, up to where the assistant's answer begins; with `goes_on`, with its part so far.

        The beginning of the answer is tokenized apart from the rest, and nothing of it is stripped: so the sequence is
        the one that the answer had when it was interrupted.
        """
        if not self.can_chat:
            raise BadRequest("this model has no chat template: use /v1/completions", param="messages")
        begun = ""
        if goes_on:
            last = messages[-1]
            if last.get("role") != "assistant" or not isinstance(last.get("content"), str):
                raise BadRequest("the last message is not an assistant's text to go on from", param="messages")
            messages, begun = messages[:-1], last["content"]
        try:
            text = self._tokenizer.apply_chat_template(
                messages, chat_template=self._template, add_generation_prompt=True, tokenize=False
            )
        except Exception as error:  # the template is the model's: it may raise anything
            raise BadRequest(f"the model's chat template refuses the messages: {error}", param="messages") from error
        return self.read_plain(text) + (self.read_plain(begun) if begun else [])

    def read_plain(self, text: str) -> list[int]:
        """Tokens of this text and nothing else."""
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def write(self, ids: Sequence[int]) -> str:
        """The text of an answer's tokens."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))

    def token(self, token_id: int) -> str:
        """One token, as log probabilities show it."""
        return str(self._tokenizer.decode([token_id]))


class Writing:
    """An answer's text as it grows. `add` gives what is certain: half a character and the beginning of what may
    become a stop string wait for what comes after them."""

    def __init__(self, texts: Texts, stops: Sequence[str]) -> None:
        self._texts, self._stops = texts, [stop for stop in stops if stop]
        self._ids: list[int] = []
        self._from, self._read = 0, 0  # of the ids: where the window begins, and up to where its text was taken
        self._held = ""
        self.text = ""  # what was given out
        self.is_stopped = False  # a stop string came: it and what follows is not part of the text

    def add(self, token_id: int) -> str:
        """What the text has grown by."""
        self._ids.append(token_id)
        before = self._texts.write(self._ids[self._from : self._read])
        whole = self._texts.write(self._ids[self._from :])
        if whole.endswith(_UNFINISHED) and len(self._ids) - self._read < WINDOW_TOKENS:
            return ""
        self._from, self._read = self._read, len(self._ids)
        return self._give(whole[len(before) :])

    def end(self) -> str:
        """What was still held back."""
        if self.is_stopped:
            return ""
        before = self._texts.write(self._ids[self._from : self._read])
        given = self._give(self._texts.write(self._ids[self._from :])[len(before) :])
        rest, self._held = self._held, ""
        self.text += rest
        return given + rest

    def _give(self, new: str) -> str:
        pending = self._held + new
        found = [pending.find(stop) for stop in self._stops if stop in pending]
        if found:
            pending, self._held, self.is_stopped = pending[: min(found)], "", True
        else:
            keep = max((_overlap(pending, stop) for stop in self._stops), default=0)
            pending, self._held = pending[: len(pending) - keep], pending[len(pending) - keep :]
        self.text += pending
        return pending


def load_texts(folder: Path, template: Path | None, end_ids: frozenset[int]) -> Texts:
    """The tokenizer in a model's folder; `end_ids` are what the model's own configuration ends an answer by."""
    import transformers

    hugging_face: Any = transformers  # partly untyped

    tokenizer = hugging_face.AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    return Texts(tokenizer, template.read_text() if template else None, end_ids)


def _overlap(text: str, stop: str) -> int:
    """How many of the last characters are the beginning of the stop string."""
    return next((size for size in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:size])), 0)
