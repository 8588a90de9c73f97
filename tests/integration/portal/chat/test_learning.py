"""Conversations become a dataset, and a training that the built-in trainer can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.test import Client

from jobs.models import ArtifactKind, Job
from jobs.spec import parse
from jobs.spec.kinds.train import train_of
from jobs.states import ArtifactState
from marketplace.accounts.models import Organisation
from marketplace.portal.chat import datasets
from marketplace.portal.chat.models import Chat, Dataset, Message
from runtimes.job_files import JobFiles
from runtimes.train.data.conversations import text_of
from runtimes.train.data.documents import find_runs, read_records
from tests import stage
from tests.integration.portal.chat.conftest import ask_and_wait, sign_in


def make(browser: Client, *chats: Chat) -> Dataset:
    answer = browser.post("/chat/datasets", {"chat": [str(each.pk) for each in chats], "model": datasets.TINY})
    assert answer.status_code == 302, answer.content.decode()
    return Dataset.objects.get()


def test_picked_chats_become_an_input_of_the_organisation(browser: Client, chat: Chat, alice: Organisation) -> None:
    good = ask_and_wait(browser, chat, "What is a souk?")
    bad = ask_and_wait(browser, chat, "And a bazaar?")
    assert browser.post(f"/chat/{chat.pk}/messages/{bad.pk}/left-out", {"left_out": "1"}).status_code == 302
    dataset = make(browser, chat)
    assert (dataset.artifact.state, dataset.artifact.kind) == (ArtifactState.COMPLETE, ArtifactKind.INPUT)
    assert (dataset.artifact.organisation, dataset.answers) == (alice, 1)
    [line] = read(browser, dataset, datasets.MESSAGES_FILE).splitlines()
    assert json.loads(line) == {
        "messages": [{"role": "user", "content": "What is a souk?"}, {"role": "assistant", "content": good.text}]
    }


def test_the_trainer_reads_a_document_a_conversation(browser: Client, chat: Chat, tmp_path: Path) -> None:
    browser.post(f"/chat/{chat.pk}/settings", {"system_prompt": "Be brief."})
    answer = ask_and_wait(browser, chat, "What is a souk?")
    dataset = make(browser, chat)
    (tmp_path / datasets.TEXTS_FILE).write_bytes(read(browser, dataset, datasets.TEXTS_FILE))
    spec = parse(browser.get(f"/chat/datasets/{dataset.pk}/job.yaml").content)
    [record] = read_records(find_runs(tuple(train_of(spec).data), JobFiles(tmp_path), 0))
    assert text_of(record) == f"Be brief.\nWhat is a souk?{answer.text}"


def test_the_training_is_launched_once_at_the_price_that_was_shown(
    browser: Client, chat: Chat, alice: Organisation
) -> None:
    ask_and_wait(browser, chat, "What is a souk?")
    dataset = make(browser, chat)
    assert "No computer in the market fits" in browser.post(f"/chat/datasets/{dataset.pk}/quote").content.decode()
    stage.node()
    page = browser.post(f"/chat/datasets/{dataset.pk}/quote")
    assert "never more than" in page.content.decode()
    quote = {"quote": str(page.context["quote"].quote_id)}
    assert browser.post(f"/chat/datasets/{dataset.pk}/launch", quote).status_code == 302
    assert browser.post(f"/chat/datasets/{dataset.pk}/launch", quote).status_code == 302
    job = Job.objects.get(kind="train")
    dataset.refresh_from_db()
    assert (job.input_artifact, dataset.job, job.organisation) == (dataset.artifact, job, alice)
    assert str(job.pk) in browser.get(f"/chat/datasets/{dataset.pk}").content.decode()


def test_nothing_to_learn_is_shown(browser: Client, chat: Chat) -> None:
    refused = browser.post("/chat/datasets", {"chat": [str(chat.pk)], "model": datasets.TINY})
    assert refused.status_code == 400
    assert "None of these chats" in refused.content.decode()


def test_others_chats_and_datasets_are_out_of_reach(browser: Client, chat: Chat, mallory: Organisation) -> None:
    ask_and_wait(browser, chat, "My secret")
    dataset = make(browser, chat)
    thief = sign_in(mallory)
    assert thief.post("/chat/datasets", {"chat": [str(chat.pk)], "model": datasets.TINY}).status_code == 400
    for path in ("", "/job.yaml", f"/files/{datasets.MESSAGES_FILE}"):
        assert thief.get(f"/chat/datasets/{dataset.pk}{path}").status_code == 404


def test_a_chat_is_downloaded_as_one_line(browser: Client, chat: Chat) -> None:
    answer = ask_and_wait(browser, chat, "Hello")
    failed = Message.objects.create(chat=chat, number=9, role="user", text="No answer came")
    page = browser.get(f"/chat/{chat.pk}/export.jsonl")
    assert failed.text not in page.content.decode()
    assert json.loads(page.content)["messages"][-1] == {"role": "assistant", "content": answer.text}


def test_a_model_of_the_hub_can_be_trained_on_and_then_needs_the_network(browser: Client, chat: Chat) -> None:
    ask_and_wait(browser, chat, "What is a souk?")
    answer = browser.post("/chat/datasets", {"chat": [str(chat.pk)], "model": "org/tiny"})
    assert answer.status_code == 302
    spec = datasets.spec_of_dataset(Dataset.objects.get())
    assert (train_of(spec).model, spec.network) == ("org/tiny", "public")
    refused = browser.post("/chat/datasets", {"chat": [str(chat.pk)], "model": "mallory/other"})
    assert refused.status_code == 400


def read(browser: Client, dataset: Dataset, name: str) -> bytes:
    """A file, by the link on the page."""
    link = browser.get(f"/chat/datasets/{dataset.pk}/files/{name}").headers["Location"]
    response: Any = browser.get(link[link.index("/artifacts/") :])
    return b"".join(response.streaming_content)
