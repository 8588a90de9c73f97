"""What tokens depend on, as one digest: of equal keys the tokens are equal, so that they need not be made again.

The content of the data's files in their order, the tokenizer and the files of the model's that write conversations,
the customer's chat template, every option that changes a token or a mark, the libraries, and the code of this package.
A name that changes alone gives the same tokens, and the same key. Of objects on S3 their pins stand in for the content,
which is not there yet.
"""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer

from runtimes.contract import is_s3_address, sha256_file
from runtimes.job_files import JobFiles
from runtimes.train.config import TrainConfig
from runtimes.train.data.documents import find_paths
from runtimes.train.data.s3 import S3Data
from runtimes.train.model import ModelSource

LIBRARIES: Final = ("tokenizers", "transformers", "jinja2", "pyarrow", "numpy")
# Of a model's folder: what its tokenizer and chat templates are read from. Weights are none of it.
TOKENIZER_SUFFIXES: Final = frozenset({".json", ".jinja", ".txt", ".model", ".tiktoken"})


def tokens_key(
    config: TrainConfig,
    files: JobFiles,
    source: ModelSource,
    *,
    tokenizer: Tokenizer,
    end_id: int,
    template_path: Path | None,
    packs: bool,
    s3: S3Data | None = None,
) -> str:
    """Of the tokens of this training's data. Raises BadData for data that are not there; of `s3` as S3Data.pin."""
    return _digest(
        "tokens",
        data=data_digest(config.data, files, s3),
        seed=config.seed,
        sequence_length=config.length,
        train_on_inputs=config.train_on_inputs,
        packs=packs,
        pairs=config.dpo is not None,
        end_id=end_id,
        tokenizer=hashlib.sha256(tokenizer.to_str().encode()).hexdigest(),
        model=_tokenizer_files(source.folder),
        template=_template(template_path),
    )


def tokenizer_key(config: TrainConfig, files: JobFiles, vocabulary_size: int, s3: S3Data | None = None) -> str:
    """Of a tokenizer that is trained on this training's data. Raises as `tokens_key`."""
    data = data_digest(config.data, files, s3)
    return _digest("tokenizer", data=data, seed=config.seed, vocabulary_size=vocabulary_size)


@lru_cache(maxsize=2)
def data_digest(names: tuple[str, ...], files: JobFiles, s3: S3Data | None = None) -> str:
    """Of the content and kinds of the data's files, in their order; read once a process. `s3` knows the addresses."""
    found: list[tuple[str, ...]] = []
    for name in names:
        if s3 is not None and is_s3_address(name):
            found += s3.pin(name)
        else:
            found += [("", _built_in()) if path is None else _file(path) for path in find_paths((name,), files)]
    return _digest("data", files=found)


def _file(path: Path) -> tuple[str, str]:
    return path.suffix, sha256_file(path)


@cache
def _built_in() -> str:
    from pydoc_data.topics import topics

    return hashlib.sha256(json.dumps(sorted(topics.items())).encode()).hexdigest()


def _tokenizer_files(folder: Path | None) -> list[tuple[str, str]]:
    if folder is None:
        return []
    paths = sorted(path for path in folder.rglob("*") if path.suffix in TOKENIZER_SUFFIXES and path.is_file())
    return [(path.relative_to(folder).as_posix(), sha256_file(path)) for path in paths]


def _template(path: Path | None) -> str | None:
    """None where there is none, or none that can be read: whoever writes by it says so."""
    try:
        return sha256_file(path) if path is not None else None
    except OSError:
        return None


@cache
def _makers() -> dict[str, str]:
    """Whatever turns the same files into other tokens when it changes."""
    here = Path(__file__).parent
    files = sorted(path for path in here.iterdir() if path.suffix in {".py", ".jinja"})
    return {
        "python": platform.python_version(),
        **{path.name: sha256_file(path) for path in files},
        **{name: _version(name) for name in LIBRARIES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _digest(what: str, **parts: object) -> str:
    text = json.dumps({"what": what, "makers": _makers(), **parts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
