"""The data of a training as tokens: encoded once a node, the same on every node, and opened by every rank."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from runtimes.train.config import TrainConfig
from runtimes.train.container import Container
from runtimes.train.data.conversations import is_text, open_conversations, text_of
from runtimes.train.data.corpus import Corpus, open_corpus
from runtimes.train.data.documents import Record, Run, find_runs, read_records
from runtimes.train.data.encode import Encoded, EncodingProgress, encode_conversations, encode_texts
from runtimes.train.data.kept import KIND, MARKS_NAME, TOKENS_NAME, Kept, find_kept, keep
from runtimes.train.data.keys import tokens_key
from runtimes.train.data.pairs import encode_pairs
from runtimes.train.data.s3 import S3Data
from runtimes.train.errors import BadConfig, BadData
from runtimes.train.model import ModelSource, can_pack
from runtimes.train.parallel import Progress, Ranks, print_line, wait_for_results
from runtimes.train.preparing import report_prepared

TOKENS_FOLDER = "cache"  # below the working directory, where nothing is kept for later trainings


def prepare_corpus(
    config: TrainConfig,
    container: Container,
    ranks: Ranks,
    source: ModelSource,
    *,
    tokenizer: Tokenizer,
    end_id: int,
    s3: S3Data | None = None,
) -> tuple[Corpus, str | None]:
    """The data as tokens: encoded by each node's leader, mapped by all, and checked to be the same on every node.

    What an earlier training of the customer's made of the same data is found in the node's cache instead. With it the
    chat template by which conversations were written, where it did not come with the model. `s3`: the data on S3, if
    there are any, whose files are gone afterwards.
    """
    making, began = _Making(config, container, source, tokenizer, end_id, s3), time.monotonic()
    results = wait_for_results(
        ranks, lambda progress: making.find_or_make(progress) if ranks.is_node_leader else None, "data"
    )
    if len({(each.encoded, each.template) for each in results if each is not None}) != 1:
        raise BadData("the nodes were given different data")
    kept = results[container.rank - container.local_rank]
    assert kept is not None  # noqa: S101 - each node's leader has one
    if s3 is not None and ranks.is_node_leader:
        s3.remove()
    _describe(kept, ranks, s3)
    if container.cache.is_there:
        report_prepared(ranks.node_events, "data", time.monotonic() - began, found=bool(kept.found))
    corpus = open_corpus(
        kept.folder / TOKENS_NAME,
        kept.folder / MARKS_NAME,
        kept.encoded,
        sequence_length=config.length,
        eval_fraction=config.eval_fraction,
        packs=making.packs,
    )
    return corpus, kept.template


@dataclass(frozen=True)
class _Making:
    """How one node's leader comes by the tokens: from the node's cache, or by encoding the data."""

    config: TrainConfig
    container: Container
    source: ModelSource
    tokenizer: Tokenizer
    end_id: int
    s3: S3Data | None

    @cached_property
    def packs(self) -> bool:
        """Whether several conversations share a sequence."""
        return self.config.packing and self.config.dpo is None and can_pack(self.source)

    def find_or_make(self, progress: Progress) -> Kept:
        """Raises BadData."""
        config, cache = self.config, self.container.cache
        if not cache.is_there:
            folder = self.container.work_dir / TOKENS_FOLDER
            folder.mkdir(parents=True, exist_ok=True)
            return Kept(*self._encode(progress, folder), folder)
        progress.text = "looking for them in the cache of this node"
        key = tokens_key(
            config,
            self.container.files,
            self.source,
            tokenizer=self.tokenizer,
            end_id=self.end_id,
            template_path=_template_path(config, self.container),
            packs=self.packs,
            s3=self.s3,
        )
        kept = find_kept(
            cache,
            key,
            vocabulary=self.source.config.vocab_size,
            sequence_length=config.length,
            rows_per_sample=config.rows_per_sample,
        )
        if kept is not None:
            return kept
        folder, began = cache.begin(KIND, key), time.monotonic()
        encoded, template = self._encode(progress, folder)
        keep(cache, folder, encoded, template, seconds=time.monotonic() - began)
        return Kept(encoded, template, folder)

    def _encode(self, progress: Progress, folder: Path) -> tuple[Encoded, str | None]:
        config, end_id, path, marks_path = self.config, self.end_id, folder / TOKENS_NAME, folder / MARKS_NAME
        fetched = self.s3.fetch(progress) if self.s3 is not None else {}
        progress.text = "looking through the files"
        runs = find_runs(config.data, self.container.files, config.seed, fetched)

        def tell(done: int, total: int, tokens: int) -> None:
            progress.text = f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB, {tokens:,} tokens"
            progress.done, progress.total, progress.unit = done, total, "bytes"

        encoding = EncodingProgress(runs, tell)
        if config.dpo is None and is_text(_first_record(runs, config.data)):
            return encode_texts(read_records(runs), self.tokenizer, end_id, path, encoding), None
        conversations = open_conversations(
            self.tokenizer,
            self.source.folder,
            end_id=end_id,
            template_path=_template_path(config, self.container),
            learns_inputs=config.train_on_inputs,
        )
        where: Any = {"end_id": end_id, "path": path, "marks_path": marks_path, "sequence_length": config.length}
        records, packs = read_records(runs), self.packs
        if config.dpo is not None:
            encoded = encode_pairs(records, self.tokenizer, conversations, **where, progress=encoding)
        else:
            encoded = encode_conversations(
                records, self.tokenizer, conversations, **where, packs=packs, progress=encoding
            )
        return encoded, conversations.kept_template


def _describe(kept: Kept, ranks: Ranks, s3: S3Data | None) -> None:
    """What a person reads of the data, once."""
    encoded = kept.encoded
    if kept.found:
        where = "as an earlier attempt of this job left them" if kept.is_of_job else "in the cache of this node"
        unread = "; nothing was fetched from S3" if s3 is not None and not s3.is_fetched else ""
        print_line(ranks, f"data: found {where} (made {kept.found}){unread}")
    if encoded.rows_per_sample > 1:
        print_line(
            ranks,
            f"pairs of answers fill {encoded.filled:.0%} of their sequences; {encoded.cut:,} answers were longer and "
            f"were cut, {encoded.left_out:,} pairs left out, of which an answer showed nothing to learn; the chat "
            f"template writes {encoded.passed_over:,} answers in another way",
        )
    elif encoded.is_rows:
        print_line(
            ranks,
            f"conversations fill {encoded.filled:.0%} of their sequences; {encoded.cut:,} were longer than one and "
            f"were cut, {encoded.left_out:,} had no answer to learn, {encoded.passed_over:,} answers were passed over",
        )


def _first_record(runs: list[Run], names: tuple[str, ...]) -> Record:
    for record in read_records(runs):
        if not is_text(record) or text_of(record).strip():
            return record
    raise BadData(f"the data holds no text: {', '.join(names)}")


def _template_path(config: TrainConfig, container: Container) -> Path | None:
    """Raises BadConfig for a path that leads out of the inputs, BadData for one that a shared host folder lacks."""
    if config.chat_template is None:
        return None
    place = container.files.place_of(config.chat_template)
    if place.is_outside or not place.holds(place.path):
        raise BadConfig([f"chat_template must be a path below {place.text}"])
    if place.label is not None and not place.path.is_file():
        raise BadData(f"chat_template {config.chat_template!r} is not in {place.text}")
    return place.path
