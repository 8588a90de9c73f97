"""Conversations become an input of a training: files in the organisation's name, and a job file that learns from them.

    messages.jsonl       {"messages": [...]} a line: what other trainers take
    conversations.jsonl  {"text": ...} a line, in the chat template that the built-in trainer's models are asked with

make      the files, stored and complete, and the job file
launch    the job, under a quote that its user has seen
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import httpx
import yaml
from django.db import transaction

from jobs import lifecycle
from jobs.artifacts import fallback
from jobs.artifacts.choice import get_store
from jobs.artifacts.inputs import announce_input, begin_input, complete_input
from jobs.artifacts.links import Link
from jobs.artifacts.local import LocalStore
from jobs.artifacts.store import key_for
from jobs.endpoints.versions import spec_of
from jobs.models import Artifact, EndpointVersion, Job
from jobs.spec import Spec, parse, serve_of
from marketplace.accounts.models import Organisation, User
from marketplace.foundation import clock
from marketplace.portal.chat.conversations import Turn, plain_text, turns_to_learn
from marketplace.portal.chat.errors import BadSetting, ChatNotFound, NothingToLearn
from marketplace.portal.chat.models import Chat, Dataset
from provider_agent.protocol import ArtifactFile, FileUpload

CHATS_MAX: Final = 500  # of one dataset
DATASET_BYTES_MAX: Final = 64 << 20
UPLOAD_SECONDS_MAX: Final = 60.0
TINY: Final = "tiny-llama"  # the model that the built-in trainer ships
MESSAGES_FILE: Final = "messages.jsonl"
TEXTS_FILE: Final = "conversations.jsonl"
STEPS: Final = 200
CHARACTERS_PER_TOKEN: Final = 4
SEQUENCES: Final = (512, 256, 128, 64, 32, 16, 8)  # the longest of which the data fills SAMPLES_MIN
SAMPLES_MIN: Final = 20


def make(organisation: Organisation, user: User, chats: Sequence[Chat], *, model: str) -> Dataset:
    """The dataset of these chats, stored. Raises NothingToLearn, BadSetting.

    A repeat makes another one: nothing of an earlier dataset changes.
    """
    if len(chats) > CHATS_MAX:
        raise BadSetting(what="A dataset", expected=f"made of at most {CHATS_MAX} chats")
    if model not in trainable_models(organisation, chats):
        raise BadSetting(what="The model to train", expected="one of those offered")
    found = [turns for chat in chats if (turns := turns_to_learn(chat))]
    if not found:
        raise NothingToLearn()
    files = files_of(found)
    if sum(map(len, files.values())) > DATASET_BYTES_MAX:
        raise BadSetting(what="A dataset", expected=f"at most {DATASET_BYTES_MAX >> 20} MiB: choose fewer chats")
    text = job_file(model, len(files[TEXTS_FILE]))
    artifact = _store(organisation, files, actor=str(user.pk))
    return Dataset.objects.create(
        user=user,
        organisation=organisation,
        artifact=artifact,
        conversations=len(found),
        answers=sum(turn["role"] == "assistant" for turns in found for turn in turns),
        job_file=text,
    )


def launch(dataset: Dataset, quote_id: UUID) -> Job:
    """The training, once: a repeat gives the same job. Raises what `lifecycle.submit` does."""
    with transaction.atomic():
        locked = Dataset.objects.select_for_update(of=("self",)).get(pk=dataset.pk)
        if locked.job is not None:
            return locked.job
        if locked.artifact is None:
            raise ChatNotFound()
        locked.job = lifecycle.submit(
            organisation=locked.organisation,
            user=locked.user,
            spec=spec_of_dataset(locked),
            quote_id=quote_id,
            input_artifact=locked.artifact,
        )
        locked.save(update_fields=["job"])
        return locked.job


def spec_of_dataset(dataset: Dataset) -> Spec:
    """Its job file, read."""
    return parse(dataset.job_file)


def trainable_models(organisation: Organisation, chats: Sequence[Chat]) -> list[str]:
    """What the training may begin from: the shipped model, and hub ids of the organisation's endpoints in the chats."""
    ids = {chat.endpoint_id for chat in chats if chat.endpoint_id}
    own = EndpointVersion.objects.filter(endpoint__in=ids, endpoint__organisation=organisation).order_by("-number")
    sources = [serve_of(spec_of(each)).model.hub for each in own[:CHATS_MAX]]
    return list(dict.fromkeys([TINY, *(hub.partition("@")[0] for hub in sources if hub)]))


def files_of(conversations: Sequence[list[Turn]]) -> dict[str, bytes]:
    """Name -> bytes."""
    return {
        MESSAGES_FILE: _lines({"messages": turns} for turns in conversations),
        TEXTS_FILE: _lines({"text": plain_text(turns)} for turns in conversations),
    }


def job_file(model: str, size: int) -> str:
    """A training of `model` on so many bytes of conversations; it parses."""
    tokens = size // CHARACTERS_PER_TOKEN
    sequence = next((each for each in SEQUENCES if tokens >= each * SAMPLES_MIN), SEQUENCES[-1])
    data: dict[str, Any] = {
        "kind": "train",
        "name": "chat-tuned",
        "resources": {"gpus": 1, "kind": "any"},
        "work": {"steps": STEPS},
        "budget": {"max_total": 2.0, "deadline": "2h"},
        "files": [TEXTS_FILE],
        "train": {"model": model, "data": TEXTS_FILE, "sequence_length": sequence, "learning_rate": 0.0003},
    }
    if model != TINY:
        data["network"] = "public"  # the weights come from the hub
    text = f"# Learns from conversations of Souk's chat. Beside {TEXTS_FILE}:\n#   souk launch job.yaml\n"
    text += yaml.safe_dump(data, sort_keys=False)
    parse(text)
    return text


def link_to(dataset: Dataset, name: str) -> str:
    """An address of one of its files, for some hours. Raises ChatNotFound."""
    if dataset.artifact is None:
        raise ChatNotFound()
    part = dataset.artifact.parts.get()
    index = next((at for at, file in enumerate(part.files) if file["path"] == name), None)
    if index is None:
        raise ChatNotFound()
    until = clock.now() + timedelta(seconds=UPLOAD_SECONDS_MAX)
    key = key_for(dataset.artifact.pk, part.node_rank, index)
    return fallback.stores_for(dataset.artifact, [part])(key).url_for_download(key, until=until)


def _store(organisation: Organisation, files: dict[str, bytes], *, actor: str) -> Artifact:
    """A complete input of these files; calls the object store, so never in a transaction."""
    listed = [
        ArtifactFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest()) for path, data in files.items()
    ]
    artifact = announce_input(organisation, listed, actor=actor)
    etags: dict[str, list[str]] = {}
    for at, upload in enumerate(begin_input(organisation, artifact.pk)):
        etags[upload.path] = _put(upload, key_for(artifact.pk, 0, at), files[upload.path])
    return complete_input(organisation, artifact.pk, etags, actor=actor)


def _put(upload: FileUpload, key: str, data: bytes) -> list[str]:
    """The ETags of the file's parts. On this server's own disk without a request to itself."""
    store = get_store()
    etags = []
    for part in upload.parts:
        piece = data[part.offset : part.offset + part.size]
        if isinstance(store, LocalStore):
            until = clock.now() + timedelta(seconds=UPLOAD_SECONDS_MAX)
            link = Link("PUT", key, until, part.number, len(upload.parts), part.size)
            etags.append(store.put_part(link, [piece]))
        else:
            answer = httpx.put(part.url, content=piece, timeout=UPLOAD_SECONDS_MAX)
            answer.raise_for_status()
            etags.append(answer.headers["ETag"].strip('"'))
    return etags


def _lines(rows: Any) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
