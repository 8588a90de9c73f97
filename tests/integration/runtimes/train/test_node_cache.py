"""A training finds on its node what an earlier one of its customer made of the same data, and else makes it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from runtimes.contract import CACHE_USED_NAME, MADE_SECONDS_NAME, MANIFEST_NAME, NEW_CACHE_NAME, Env
from tests.integration.runtimes.programs import MICRO_CONFIG, Work, kill_group, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG: dict[str, Any] = {**MICRO_CONFIG, "steps": 6, "warmup_steps": 2, "evaluate_every": 3, "log_samples": False}
FOUND = "data: found in the cache of this node (made 20"
OF_JOB = "data: found as an earlier attempt of this job left them (made 20"
CONVERSATIONS = [
    {"messages": [{"role": "user", "content": f"What is {n}?"}, {"role": "assistant", "content": f"It is {n} + 0."}]}
    for n in range(120)
]


class Node:
    """The cache of a node for one customer, and the trainings that run there one after the other."""

    def __init__(self, root: Path) -> None:
        self.root, self.cache = root, root / "cache"
        self.cache.mkdir(parents=True)
        self.count = 0

    def work(self, *, ranks: int = 1, **config: Any) -> Work:
        """The next training's work folder, written."""
        self.count += 1
        env: dict[str, str] = {Env.CACHE_DIR: str(self.cache)}
        work = Work(self.root / f"work-{self.count}", ranks=ranks, env=env, launched=ranks > 1)
        return work.write({**CONFIG, **config})

    def take(self, work: Work) -> None:
        """What the agent does: complete entries become the node's."""
        for manifest in (work.root / NEW_CACHE_NAME).glob(f"*/*/{MANIFEST_NAME}"):
            entry = manifest.parent
            shutil.copytree(entry, self.cache / entry.parent.name / entry.name, dirs_exist_ok=True)

    def train(self, *, ranks: int = 1, **config: Any) -> tuple[Work, str]:
        """One training to its end, whose entries the node takes; what it printed."""
        work = self.work(ranks=ranks, **config)
        return work, self.run(work)

    def run(self, work: Work) -> str:
        code, output = work.run()
        assert code == 0, output
        self.take(work)
        return output


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def losses(work: Work) -> list[tuple[int, float]]:
    return [(event["step"], event["loss"]) for kind in ("step", "evaluated") for event in work.events(kind)]


def made(work: Work) -> list[str]:
    """The kinds of what a training made itself."""
    return sorted(path.parent.parent.name for path in (work.root / NEW_CACHE_NAME).glob(f"*/*/{MANIFEST_NAME}"))


def test_the_second_training_makes_no_tokens_and_has_the_same_losses(node: Node) -> None:
    first, said = node.train(ranks=2)
    assert FOUND not in said
    assert made(first) == ["tokenizer", "tokens"]
    second, said = node.train(ranks=2)
    assert FOUND in said
    assert made(second) == []
    assert losses(second) == losses(first) != []
    used = (second.root / NEW_CACHE_NAME / CACHE_USED_NAME).read_text().splitlines()
    assert sorted(line.partition("/")[0] for line in used) == ["tokenizer", "tokens"]
    without = Work(node.root / "without", ranks=2).write(CONFIG)
    assert without.run()[0] == 0
    assert losses(without) == losses(first), "and so has a training without a cache"
    assert not (without.root / NEW_CACHE_NAME).exists()


def test_options_that_change_no_token_find_the_same(node: Node) -> None:
    node.train()
    other, said = node.train(learning_rate=1e-3, global_batch_size=6, micro_batch_size=3, eval_fraction=0.1)
    assert FOUND in said
    assert made(other) == []


def test_changed_data_seeds_and_lengths_are_made_anew(node: Node) -> None:
    node.train()
    assert made(node.train(seed=6)[0]) == ["tokenizer", "tokens"]
    assert made(node.train(sequence_length=16)[0]) == ["tokens"]
    changed = node.work()
    (changed.root / "input" / "more.txt").write_text("Another text, of one line.\n" * 40)
    assert FOUND not in node.run(changed)
    assert made(changed) == ["tokenizer", "tokens"]
    renamed = node.work(data=["docs.jsonl", "other.txt"])
    (renamed.root / "input" / "more.txt").rename(renamed.root / "input" / "other.txt")
    assert FOUND in node.run(renamed), "a name is nothing that tokens depend on"


def test_conversations_are_found_by_template_and_what_is_learned(node: Node) -> None:
    def train(template: str | None, **config: Any) -> tuple[Work, str]:
        work = node.work(data=["chats.jsonl"], sequence_length=48, **config)
        (work.root / "input" / "chats.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CONVERSATIONS))
        if template is not None:
            (work.root / "input" / "own.jinja").write_text(template)
        return work, node.run(work)

    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    first, said = train(plain, chat_template="own.jinja")
    assert FOUND not in said
    again, said = train(plain, chat_template="own.jinja")
    assert FOUND in said
    assert losses(again) == losses(first)
    assert f"{plain}" in (again.root / "output" / "model" / "chat_template.jinja").read_text()
    assert FOUND not in train(plain.replace(": ", " - "), chat_template="own.jinja")[1]
    assert FOUND not in train(None)[1], "our own template is another"
    assert FOUND not in train(plain, chat_template="own.jinja", train_on_inputs=True)[1]
    assert FOUND not in train(plain, chat_template="own.jinja", packing=False)[1]


@pytest.mark.parametrize("damage", ["flipped", "cut", "manifest", "foreign"])
def test_an_entry_that_is_damaged_is_made_anew(node: Node, damage: str) -> None:
    first, _ = node.train()
    [tokens] = node.cache.glob("tokens/*/tokens.int32")
    manifest = tokens.with_name(MANIFEST_NAME)
    if damage == "flipped":
        whole = bytearray(tokens.read_bytes())
        whole[1000] ^= 1
        tokens.write_bytes(whole)
    elif damage == "cut":
        os.truncate(tokens, tokens.stat().st_size // 2)
    elif damage == "manifest":
        manifest.write_text("[" * 100_000)
    else:  # right by its digests, and not what a training writes
        about = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**about, "encoded": {"digest": 7}}))
    second, said = node.train()
    assert FOUND not in said
    assert made(second) == ["tokens"]
    assert losses(second) == losses(first)
    assert FOUND in node.train()[1], "what was made anew has taken its place"


def test_a_training_killed_while_it_writes_tokens_leaves_no_entry(node: Node) -> None:
    work = node.work()
    big = json.dumps({"text": "What was, and what will be, is in these lines. " * 60}) + "\n"
    (work.root / "input" / "docs.jsonl").write_text(big * 4_000)
    process = work.start()
    tokens = work.root / NEW_CACHE_NAME / "tokens"
    wait_until(lambda: any(path.stat().st_size for path in tokens.glob("*/tokens.int32")), process)
    kill_group(process)
    assert made(work) == ["tokenizer"], "the tokenizer was whole, the tokens were not"
    node.take(work)
    assert not list(node.cache.glob("tokens/*"))


def put_before_the_start(first: Work, second: Work) -> Path:
    """What the agent does with what it fetched from the artifact store; where the tokens lie."""
    shutil.copytree(first.root / NEW_CACHE_NAME, second.root / NEW_CACHE_NAME)
    [tokens] = (second.root / NEW_CACHE_NAME).glob("tokens/*/tokens.int32")
    return tokens


def prepared(work: Work) -> dict[str, bool]:
    return {event["what"]: event["found"] for event in work.events("prepared")}


def test_what_an_earlier_attempt_prepared_is_found_in_the_work_folder(node: Node, tmp_path: Path) -> None:
    first, _ = node.train(ranks=2)
    assert prepared(first) == {"tokenizer": False, "data": False}
    seconds = [
        json.loads(path.read_text())[MADE_SECONDS_NAME]
        for path in (first.root / NEW_CACHE_NAME).glob(f"*/*/{MANIFEST_NAME}")
    ]
    assert len(seconds) == 2
    assert all(0 <= each < 300 for each in seconds)
    other = Node(tmp_path / "other")
    second = other.work(ranks=2)
    tokens = put_before_the_start(first, second)
    before = tokens.stat().st_mtime_ns
    said = other.run(second)
    assert OF_JOB in said
    assert prepared(second) == {"tokenizer": True, "data": True}
    assert tokens.stat().st_mtime_ns == before, "nothing was made anew"
    assert losses(second) == losses(first)


def test_a_prepared_entry_that_is_damaged_is_made_anew(node: Node, tmp_path: Path) -> None:
    first, _ = node.train()
    other = Node(tmp_path / "other")
    second = other.work()
    tokens = put_before_the_start(first, second)
    whole = bytearray(tokens.read_bytes())
    whole[1000] ^= 1
    tokens.write_bytes(whole)
    assert OF_JOB not in other.run(second)
    assert prepared(second) == {"tokenizer": True, "data": False}
    assert losses(second) == losses(first)
