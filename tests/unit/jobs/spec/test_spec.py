"""What a good file becomes, its canonical form, and its hash."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs.spec import (
    Budget,
    Checkpoint,
    Resources,
    Retry,
    TrainSection,
    Work,
    canonical,
    from_wire,
    kind_of,
    parse,
    spec_hash,
)
from jobs.spec.errors import SpecErrors
from jobs.spec.kinds.train import (
    DpoSection,
    EarlyStopSection,
    LoraSection,
    ProfileSection,
    TrainSpec,
    node_counts,
    train_of,
    training_tokens,
)
from jobs.spec.model import GPUS_MAX, RETRY_REASONS, JobFields
from jobs.spec.units import format_money, parse_duration, parse_memory, parse_money
from provider_agent.facts import RUNTIME_FEATURES
from provider_agent.protocol import DEVICES_PER_NODE_MAX, REASONS, AttemptState
from runtimes.contract import PINNED_SETTINGS
from runtimes.train.config import (
    FINE_TUNING_RATE,
    NEW_WEIGHTS_RATE,
    OTHER_LENGTH,
    SHIPPED_LENGTH,
    Dpo,
    EarlyStop,
    Lora,
    Profile,
    TrainConfig,
    parse_config,
    settled,
)
from runtimes.train.errors import BadConfig
from runtimes.train.strategies.registry import STRATEGIES

EXAMPLES = sorted((Path(__file__).parents[4] / "examples").glob("*.yaml"))

FULL = """
kind: train
name: tiny-llama
resources:
  gpus: 2
  nodes: 3
  kind: any
  models: [H100, RTX 4090]
  memory: 24GB
  cuda: 12.4
  compute_capability: "9"
  shm: 2GiB
  cpus: 8
  ram: 64GiB
  disk: 1TiB
  region: eu-west
work: {tokens: 600_000}
budget: {max_total: 2.10, max_per_gpu_hour: $0.30, deadline: 1h30m}
checkpoint: {every: 50 steps, keep: 3}
retry: {max_attempts: 3, on: exit_nonzero}
env: {MODE: "1"}
secrets: [HF_TOKEN]
files: [./train.py, data/]
train: {learning_rate: 3e-4, betas: [0, 0.5], data: a.txt}
"""


def test_a_full_file_becomes_integers_and_lists() -> None:
    spec = parse(FULL)
    assert spec.resources.devices == 6
    assert (spec.resources.memory_mib, spec.resources.region) == (22889, ["eu-west"])
    resources = spec.resources
    assert (resources.cuda, resources.compute_capability, resources.shm_mib) == ((12, 4), (9, 0), 2048)
    assert (resources.cpus, resources.ram_mib, resources.disk_mib) == (8, 65_536, 1 << 20)
    assert spec.work is not None and spec.work.tokens == 600_000
    assert spec.budget.max_total_usd_micros == 2_100_000
    assert spec.budget.max_per_gpu_hour_usd_micros == 300_000
    assert spec.budget.deadline_seconds == 5400
    assert (spec.checkpoint.every_steps, spec.checkpoint.every_seconds) == (50, 0)
    assert spec.retry.on == ["exit_nonzero"]
    assert spec.files == ["train.py", "data/"]
    train = train_of(spec)
    assert train is not None and (train.learning_rate, train.data) == (3e-4, ["a.txt"])


def test_canonical_form_reads_back_to_the_same_spec_and_hash() -> None:
    spec = parse(FULL)
    again = from_wire(json.loads(json.dumps(canonical(spec))))
    assert again == spec
    assert spec_hash(again) == spec_hash(spec)
    assert canonical(again) == canonical(spec)


def test_a_range_of_nodes_is_planned_with_the_fewest_and_keeps_its_own_hash() -> None:
    fixed, grows = parse(FULL), parse(FULL.replace("nodes: 3", "nodes: 3..6"))
    assert (fixed.resources.nodes, fixed.resources.nodes_max, canonical(fixed)["resources"]["nodes"]) == (3, 3, 3)
    assert (grows.resources.nodes, grows.resources.nodes_max, grows.resources.devices) == (3, 6, 6)
    assert canonical(grows)["resources"]["nodes"] == "3..6"
    assert from_wire(json.loads(json.dumps(canonical(grows)))) == grows
    assert spec_hash(grows) != spec_hash(fixed)
    assert kind_of(grows).runtime_features(grows) == kind_of(fixed).runtime_features(fixed)


def test_every_size_of_a_gang_that_grows_has_its_memory_reckoned() -> None:
    """With more ranks a rank has fewer sequences, and may do them in fewer and larger passes."""
    text = FULL.replace("nodes: 3", "nodes: 2..5").replace("gpus: 2", "gpus: 1")
    grows = parse(text.replace("data: a.txt", "data: a.txt, global_batch_size: 10, micro_batch_size: 4, strategy: ddp"))
    assert node_counts(grows) == [2, 3, 4, 5]
    floors = []
    for nodes in node_counts(grows):
        resources = grows.resources.model_copy(update={"nodes_asked": (nodes, nodes)})
        floors.append(TrainSpec().memory_floor_mib(grows.model_copy(update={"resources": resources})))
    assert TrainSpec().memory_floor_mib(grows) == max(floors)
    many = parse(text.replace("2..5", "2..1000").replace("data: a.txt", "data: a.txt, global_batch_size: 2000"))
    assert len(node_counts(many)) < 100


def test_hash_does_not_depend_on_the_order_of_keys_or_on_spelling() -> None:
    body = canonical(parse(FULL))
    text = json.dumps(dict(reversed(body.items()))).replace("5400s", "1h 30m").replace('"2.10"', "2.100000")
    assert spec_hash(parse(text)) == spec_hash(parse(FULL))


def test_hash_changes_with_any_value() -> None:
    assert spec_hash(parse(FULL.replace("2.10", "2.11"))) != spec_hash(parse(FULL))
    assert spec_hash(parse(FULL.replace("3e-4", "3e-5"))) != spec_hash(parse(FULL))


def test_command_as_text_goes_to_bash_and_as_list_runs_as_it_is() -> None:
    head = "kind: train\nname: a\nbudget: {max_total: 1}\n"
    assert parse(head + "command: cd input && python own.py 'a b'").command == [
        "bash",
        "-c",
        "cd input && python own.py 'a b'",
    ]
    spec = parse(head + "command: [python, own.py]\nwork: {steps: 10, flops_per_step: 1e12}")
    assert spec.command == ["python", "own.py"]
    assert spec.work is not None and spec.work.flops_per_step == 1e12
    assert from_wire(canonical(spec)) == spec


def test_words_that_yaml_1_1_takes_for_something_else_stay_texts() -> None:
    spec = parse("kind: train\nname: on\nbudget: {max_total: 1}\ncommand: [no, yes, 1:30, 2024-01-01, 0x10]\n")
    assert spec.name == "on"
    assert spec.command == ["no", "yes", "1:30", "2024-01-01", "0x10"]


def test_runtime_reads_what_the_spec_gives_it() -> None:
    spec = parse(FULL)
    config = parse_config(kind_of(spec).config(spec))
    assert (config.tokens, config.learning_rate, config.betas) == (600_000, 3e-4, (0.0, 0.5))


def test_strategy_stands_in_the_canonical_form_only_where_it_is_not_the_default() -> None:
    unset = parse(FULL)
    assert "strategy" not in canonical(unset)["train"]
    assert "strategy" not in kind_of(unset).config(unset)
    assert spec_hash(parse(FULL.replace("train: {", "train: {strategy: fsdp2, "))) == spec_hash(unset)
    replicated = parse(FULL.replace("train: {", "train: {strategy: ddp, "))
    assert spec_hash(replicated) != spec_hash(unset)
    assert from_wire(canonical(replicated)) == replicated
    assert parse_config(kind_of(replicated).config(replicated)).strategy == "ddp"


def test_every_strategy_but_the_first_needs_a_runtime_that_knows_it() -> None:
    needed: set[str] = set()
    for name in STRATEGIES:
        spec = parse(FULL.replace("train: {", f"train: {{strategy: {name}, "))
        needed |= kind_of(spec).runtime_features(spec)
    assert needed == {f"train.{name}" for name in STRATEGIES if name != "fsdp2"}
    assert needed <= set(RUNTIME_FEATURES), "this agent knows what its own runtimes do"


def test_later_fields_change_nothing_where_they_are_not_used_and_need_a_runtime_that_knows_them() -> None:
    unset = parse(FULL)
    said = parse(FULL.replace("train: {", "train: {activation_checkpointing: none, compile: false, offload: none, "))
    assert spec_hash(said) == spec_hash(unset)
    used = parse(FULL.replace("train: {", "train: {activation_checkpointing: full, compile: true, offload: all, "))
    assert from_wire(canonical(used)) == used
    config = parse_config(kind_of(used).config(used))
    assert (config.activation_checkpointing, config.compile, config.offload) == ("full", True, "all")
    needed = kind_of(used).runtime_features(used)
    assert needed == {"train.activation_checkpointing", "train.compile", "train.offload"} <= set(RUNTIME_FEATURES)


def test_what_is_left_open_is_as_before_for_a_new_model_and_the_runtimes_choice_for_others() -> None:
    text = FULL.replace("learning_rate: 3e-4, ", "")
    assert "sequence_length" not in text
    assert "learning_rate" not in text
    new = parse(text)
    said = canonical(new)["train"]
    assert (said["learning_rate"], said["sequence_length"]) == (NEW_WEIGHTS_RATE, SHIPPED_LENGTH)
    assert not kind_of(new).runtime_features(new)
    other = parse(text.replace("train: {", "train: {model: org/name, "))
    assert not {"learning_rate", "sequence_length"} & canonical(other)["train"].keys()
    assert from_wire(canonical(other)) == other
    needed = kind_of(other).runtime_features(other)
    assert needed == {"train.open_learning_rate", "train.open_sequence_length"} <= set(RUNTIME_FEATURES)
    config = parse_config(kind_of(other).config(other))
    of_old = settled(config, has_weights=True, is_shipped=False, length_max=None)
    assert (of_old.learning_rate, of_old.sequence_length) == (FINE_TUNING_RATE, OTHER_LENGTH)
    of_new = settled(config, has_weights=False, is_shipped=False, length_max=512)
    assert (of_new.learning_rate, of_new.sequence_length) == (NEW_WEIGHTS_RATE, 512)


def test_what_goes_on_beside_the_steps_has_the_runtimes_defaults() -> None:
    unset = parse(FULL)
    nulls = "ema: null, early_stop: null, deterministic: false, profile: null, "
    assert spec_hash(parse(FULL.replace("train: {", f"train: {{{nulls}"))) == spec_hash(unset)
    given = "ema: 0.999, early_stop: {}, deterministic: true, profile: {}, "
    used = parse(FULL.replace("train: {", f"train: {{{given}"))
    assert from_wire(json.loads(json.dumps(canonical(used)))) == used
    config = parse_config(kind_of(used).config(used))
    assert (config.early_stop, config.profile, config.ema) == (EarlyStop(), Profile(), 0.999)
    saved = json.loads(json.dumps(dataclasses.asdict(config)))
    assert saved["early_stop"] == kind_of(used).config(used)["early_stop"], "the marketplace compares them"
    names = {"train.ema", "train.early_stop", "train.deterministic", "train.profile"}
    assert kind_of(used).runtime_features(used) == names <= set(RUNTIME_FEATURES)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("early_stop: {}, evaluate_every: 0, ", "train.early_stop"),
        ("early_stop: {patience: 0}, ", "train.early_stop.patience"),
        ("early_stop: {min_delta: -1}, ", "train.early_stop.min_delta"),
        ("deterministic: true, shares: measured, ", "train.deterministic"),
        ("ema: 1, ", "train.ema"),
        ("profile: {steps: 21}, ", "train.profile.steps"),
    ],
)
def test_choices_beside_the_steps_are_bounded_as_in_the_runtime(given: str, path: str) -> None:
    text = FULL.replace("train: {", f"train: {{{given}")
    with pytest.raises(SpecErrors) as caught:
        parse(text)
    assert path in {error.path for error in caught.value.errors}
    train = yaml.safe_load(text)["train"]
    with pytest.raises(BadConfig, match=path.rpartition(".")[2]):
        parse_config(train | {"steps": 1})


def test_adapters_have_the_defaults_of_the_runtime_and_need_one_that_knows_them() -> None:
    unset = parse(FULL.replace("train: {", "train: {model: org/name, sequence_length: 512, "))
    assert spec_hash(
        parse(FULL.replace("train: {", "train: {model: org/name, sequence_length: 512, lora: null, "))
    ) == spec_hash(unset)
    used = parse(FULL.replace("train: {", "train: {model: org/name, sequence_length: 512, lora: {}, "))
    assert from_wire(json.loads(json.dumps(canonical(used)))) == used
    config = parse_config(kind_of(used).config(used))
    assert config.lora == Lora()
    saved = json.loads(json.dumps(dataclasses.asdict(config)))
    assert {name: saved[name] for name in PINNED_SETTINGS} == {
        name: kind_of(used).config(used).get(name) for name in PINNED_SETTINGS
    }, "a checkpoint says what the marketplace compares it with"
    assert kind_of(used).runtime_features(used) == {"train.lora"} <= set(RUNTIME_FEATURES)
    some = parse(
        FULL.replace("train: {", "train: {model: org/name, sequence_length: 512, lora: {rank: 4, targets: q_proj}, ")
    )
    assert parse_config(kind_of(some).config(some)).lora == Lora(rank=4, targets=("q_proj",))


@pytest.mark.parametrize(
    ("written", "feature", "found"),
    [
        ("dpo: {}", {"train.dpo"}, {"dpo": Dpo()}),
        ("dpo: {beta: 0.5}", {"train.dpo"}, {"dpo": Dpo(0.5)}),
        ("lora: {}, quantize: nf4", {"train.lora", "train.quantize"}, {"lora": Lora(), "quantize": "nf4"}),
    ],
)
def test_later_methods_need_an_agent_that_knows_them(written: str, feature: set[str], found: dict[str, object]) -> None:
    plain = parse(FULL.replace("train: {", "train: {model: org/name, sequence_length: 512, "))
    used = parse(FULL.replace("train: {", f"train: {{model: org/name, sequence_length: 512, {written}, "))
    off = parse(FULL.replace("train: {", "train: {model: org/name, sequence_length: 512, dpo: null, quantize: null, "))
    assert spec_hash(off) == spec_hash(plain) != spec_hash(used)
    assert kind_of(used).runtime_features(used) == feature <= set(RUNTIME_FEATURES)
    config = parse_config(kind_of(used).config(used))
    assert {name: getattr(config, name) for name in found} == found


def test_pair_of_answers_counts_the_tokens_of_both() -> None:
    text = FULL.replace("train: {", "train: {model: org/name, sequence_length: 512, ")
    one, two = parse(text), parse(text.replace("train: {", "train: {dpo: {}, "))
    (steps_one, tokens_one), (steps_two, tokens_two) = (
        (TrainSpec().steps(each), training_tokens(each)) for each in (one, two)
    )
    assert steps_one and tokens_one and steps_two and tokens_two
    assert tokens_two / steps_two == 2 * tokens_one / steps_one
    assert parse_config(kind_of(two).config(two)).steps_total == steps_two


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("dpo: {beta: 0}", "a number above 0 and at most 100"),
        ("dpo: {}, train_on_inputs: true", "dpo compares answers alone"),
        ("quantize: nf4", "without lora none is frozen"),
        ("lora: {}, quantize: nf4, compile: true", "stands beside compile: true"),
        ("lora: {}, quantize: int8", "nf4, with lora alone, or null"),
    ],
)
def test_methods_that_cannot_be_are_refused_by_both(written: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(FULL.replace("train: {", f"train: {{model: org/name, sequence_length: 512, {written}, "))
    with pytest.raises(BadConfig):
        parse_config({"model": "org/name", "steps": 1, **yaml.safe_load(f"{{{written}}}")})


def test_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="strategy") as caught:
        parse(FULL.replace("train: {", "train: {strategy: zero3, "))
    assert "fsdp2, hsdp or ddp" in str(caught.value)


def test_spec_and_runtime_know_the_same_strategies() -> None:
    assert get_args(TrainSection.model_fields["strategy"].annotation) == tuple(STRATEGIES)


def test_train_section_has_the_runtimes_keys_and_defaults() -> None:
    theirs = {f.name: f.default for f in dataclasses.fields(TrainConfig) if f.name not in ("steps", "tokens")}
    ours = {name: field.default for name, field in TrainSection.model_fields.items()}
    assert json.loads(json.dumps(ours)) == json.loads(json.dumps(theirs))


@pytest.mark.parametrize(
    "text",
    [
        "eval_fraction: 0.5", "eval_fraction: 0.51", "eval_fraction: 0", "vocabulary_size: 299", "sequence_length: 7",
        "global_batch_size: 65536", "global_batch_size: 65537", "learning_rate: 10", "learning_rate: 10.1",
        "chat_template: ''", "chat_template: a.jinja", "packing: 1", "packing: false", "train_on_inputs: true",
        "weight_decay: 11", "gradient_clip: 0", "seed: 9223372036854775807", "seed: 9223372036854775808",
        "sample_every: -1", "sample_every: -2", "log_every: 0", "betas: [0.9, 0.99999]", "betas: [0.9, 0.999999]",
        "model: m, lora: {rank: 1}", "model: m, lora: {rank: 0}", "model: m, lora: {rank: 1025}",
        "model: m, lora: {alpha: 0.1}", "model: m, lora: {alpha: 0}", "model: m, lora: {alpha: 65537}",
        "model: m, lora: {dropout: 0.99}", "model: m, lora: {dropout: 1}", "model: m, lora: {rnk: 1}",
        "model: m, lora: {targets: []}", "model: m, lora: {targets: ['.*']}", "model: m, lora: {targets: [a.b-c_1]}",
        'model: m, lora: {targets: ["a\\n"]}', "model: m, lora: true", "lora: {}", "lora: null",
        "warmup_steps: 0", "evaluate_every: 1.5", "sample_prompt: ''", "model: ''", "data: ['']",
    ],
)  # fmt: skip
def test_train_section_has_the_runtimes_bounds(text: str) -> None:
    def is_accepted_by_spec() -> bool:
        try:
            parse(f"kind: train\nname: a\nbudget: {{max_total: 1}}\nwork: {{steps: 1}}\ntrain: {{{text}}}")
        except ValueError:
            return False
        return True

    def is_accepted_by_runtime() -> bool:
        try:
            parse_config({"steps": 1, **yaml.safe_load(f"{{{text}}}")})
        except Exception:
            return False
        return True

    assert is_accepted_by_spec() == is_accepted_by_runtime()


def test_vocabulary_is_the_protocols() -> None:
    expected = {reason.value for reason, row in REASONS.items() if row.state is AttemptState.FAILED and not row.retry}
    assert set(RETRY_REASONS) == expected
    assert GPUS_MAX == DEVICES_PER_NODE_MAX


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_good_job_files(path: Path) -> None:
    spec = parse(path.read_bytes())
    assert from_wire(canonical(spec)) == spec
    assert all((path.parent / name).exists() for name in spec.files)


@given(st.integers(1, 10**15))
def test_money_is_exact_both_ways(micros: int) -> None:
    assert parse_money(format_money(micros)) == micros


@given(st.integers(1, 10**12))
def test_money_as_a_float_is_what_was_written(micros: int) -> None:
    assert parse_money(float(format_money(micros))) == micros


def test_units() -> None:
    assert [parse_duration(text) for text in ("90s", "5m", "2h", "1d", "1h30m", "1d 2h")] == [
        90,
        300,
        7200,
        86400,
        5400,
        93600,
    ]
    assert [parse_memory(text) for text in ("1MiB", "1GiB", "80GB", "0.5 GiB", "1TB")] == [1, 1024, 76294, 512, 953675]


def test_reference_names_every_field_of_every_section() -> None:
    text = (Path(__file__).parents[4] / "docs" / "job-file.md").read_text()
    top = (JobFields, Resources, Work, Budget, Checkpoint, Retry)
    models = (*top, TrainSection, LoraSection, DpoSection, EarlyStopSection, ProfileSection)
    names = {info.alias or name for model in models for name, info in model.model_fields.items()}
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def test_job_files_in_the_reference_are_good() -> None:
    text = (Path(__file__).parents[4] / "docs" / "job-file.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    names = [
        "tiny-llama",
        "grows",
        "hf-trainer",
        "own-script",
        "from-s3",
        "tables-from-s3",
        "my-llm",
        "from-shared-folders",
        "compare",
        "ours-and-theirs",
    ]
    assert [parse(block).name for block in blocks] == [*names, "tune", "from-a-volume"]


def test_outputs_are_for_own_commands_and_for_agents_that_know_them() -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    without, given = parse(head), parse(head + 'outputs: [results/, "*.pt"]\n')
    assert "outputs" not in canonical(without), "what was hashed before the field existed keeps its hash"
    assert kind_of(without).runtime_features(without) == frozenset()
    assert canonical(given)["outputs"] == ["results/", "*.pt"]
    assert from_wire(canonical(given)) == given
    assert kind_of(given).runtime_features(given) == {"outputs"} <= set(RUNTIME_FEATURES)
    with pytest.raises(ValueError, match="the built-in runtime writes below output/"):
        parse(FULL + "\noutputs: results\n")
    with pytest.raises(ValueError, match="is not a path below"):
        parse(head + "outputs: [../secrets]\n")


def test_a_checkpoint_path_is_for_own_commands_and_for_agents_that_know_it() -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    without, given = parse(head + "checkpoint: {every: 5m}\n"), parse(head + "checkpoint: {path: ./results/}\n")
    assert canonical(without)["checkpoint"] == {"every": "300s", "keep": 2}, "it keeps the hash that it had"
    assert kind_of(without).runtime_features(without) == frozenset()
    assert canonical(given)["checkpoint"]["path"] == "results"
    assert from_wire(canonical(given)) == given
    assert kind_of(given).runtime_features(given) == {"checkpoint_path"} <= set(RUNTIME_FEATURES)
    with pytest.raises(ValueError, match="the built-in runtime saves its checkpoints by itself"):
        parse(FULL.replace("checkpoint: {", "checkpoint: {path: results, "))


def test_interval_of_checkpoints_may_be_left_to_the_runtime() -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    given = parse(head + "checkpoint: {every: auto}\n")
    assert (given.checkpoint.is_auto, given.checkpoint.every_steps, given.checkpoint.every_seconds) == (True, 0, 300)
    assert canonical(given)["checkpoint"] == {"every": "auto", "keep": 2}
    assert from_wire(canonical(given)) == given
    assert kind_of(given).runtime_features(given) == {"checkpoint_auto"} <= set(RUNTIME_FEATURES)
    assert not parse(head + "checkpoint: {every: 5m}\n").checkpoint.is_auto


@pytest.mark.parametrize("path", ["output", "output/run-1", "input/results", "snapshot.pt", "a/b/c.d", "_x"])
def test_checkpoint_paths_that_are_taken(path: str) -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    assert parse(head + f"checkpoint: {{path: {path}}}\n").checkpoint.path == path


@pytest.mark.parametrize(
    ("checkpoint", "mistake"),
    [
        ("{path: results, every: 50 steps}", "nobody sees the steps of a program of your own"),
        ("{path: ../secrets}", "is not a path of plain names"),
        ("{path: a/../../b}", "is not a path of plain names"),
        ("{path: /etc}", "is not a path of plain names"),
        ("{path: .}", "is not a path of plain names"),
        ("{path: ''}", "a folder or file in the work folder"),
        ("{path: .cache}", "is not a path of plain names"),
        ("{path: 'a\\b'}", "is not a path of plain names"),
        ("{path: 'caf\u00e9'}", "is not a path of plain names"),
        ('{path: "a\\0b"}', "path"),
        ("{path: input}", "lies where the marketplace itself writes"),
        ("{path: checkpoint/step-1}", "lies where the marketplace itself writes"),
        ("{path: resume}", "lies where the marketplace itself writes"),
        ("{path: events.jsonl}", "lies where the marketplace itself writes"),
        ("{path: a/b/c/d/e/f/g/h/i}", "characters or 8 names"),
        ("{path: [a, b]}", "path"),
    ],
)
def test_checkpoint_paths_that_are_refused(checkpoint: str, mistake: str) -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    with pytest.raises(ValueError, match=mistake):
        parse(head + f"checkpoint: {checkpoint}\n")


def test_a_checkpoint_path_is_for_one_node() -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    with pytest.raises(ValueError, match="is for one node"):
        parse(head + "checkpoint: {path: results}\nresources: {nodes: 2}\n")


def test_the_example_of_a_checkpoint_path_needs_no_line_of_ours_in_its_script() -> None:
    examples = Path(__file__).parents[4] / "examples"
    assert parse((examples / "hf-trainer.yaml").read_text()).checkpoint.path == "results"
    assert "souk" not in (examples / "hf_trainer.py").read_text().lower()


def test_setup_and_requirements_are_for_own_commands_and_agents_that_know_them() -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    without = parse(head)
    assert not {"setup", "requirements"} & set(canonical(without)), "what was hashed before keeps its hash"
    given = parse(head + "setup: pip list\nrequirements: ./r/all.txt\nfiles: r\nnetwork: public\n")
    assert canonical(given)["setup"] == ["pip list"]
    assert canonical(given)["requirements"] == "r/all.txt"
    assert from_wire(canonical(given)) == given
    assert kind_of(given).runtime_features(given) == {"setup", "requirements"} <= set(RUNTIME_FEATURES)
    locked = parse(head + "requirements: uv.lock\nfiles: [uv.lock, pyproject.toml]\nnetwork: public\n")
    assert kind_of(locked).runtime_features(locked) == {"requirements", "requirements_lock"} <= set(RUNTIME_FEATURES)
    for line in ("setup: x", "requirements: r.txt"):
        with pytest.raises(ValueError, match="is given without a command: the built-in runtime brings"):
            parse(FULL + f"\n{line}\n")


@pytest.mark.parametrize(
    ("lines", "mistake"),
    [
        ("requirements: r.txt\nnetwork: public", "r.txt is not among files"),
        ("requirements: r.txt\nfiles: r.txt", "network is none"),
        ("requirements: poetry.lock\nfiles: .", "or is called uv.lock"),
        ("requirements: uv.lock\nfiles: .", "read by uv, which not every node has, and network is none"),
        ("requirements: a/uv.lock\nfiles: [a/uv.lock]\nnetwork: public", "a/uv.lock is sent without its project"),
        ("requirements: ../r.txt\nfiles: .", "is not a path of plain names"),
        ("setup: ['']", "is empty"),
        ("setup: []", "setup"),
        (f"setup: [{'a' * 4097}]", "4096"),
        (f"setup: [{', '.join(['x'] * 51)}]", "50"),
    ],
)
def test_setup_and_requirements_that_are_refused(lines: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=mistake):
        parse(f"kind: command\nname: a\nbudget: {{max_total: 1}}\ncommand: x\n{lines}\n")


@pytest.mark.parametrize("line", ["cat <<X > a\nit's\nX", r"echo $'it\'s'", "echo ${a:-it's} # it's"])
def test_a_setup_line_is_for_bash_and_not_split_into_words(line: str) -> None:
    text = json.dumps(line)
    given = parse(f"kind: command\nname: a\nbudget: {{max_total: 1}}\ncommand: x\nsetup: [{text}]\n")
    assert given.setup == [line]


@pytest.mark.parametrize("files", ["[r.txt, wheels]", "[.]", "[r.txt, wheels/toy-1.whl]"])
def test_wheels_beside_the_requirements_need_no_network(files: str) -> None:
    head = "kind: command\nname: a\nbudget: {max_total: 1}\ncommand: x\n"
    assert parse(head + f"requirements: r.txt\nfiles: {files}\n").network == "none"


def test_the_example_of_requirements_sends_what_it_names() -> None:
    examples = Path(__file__).parents[4] / "examples"
    spec = parse((examples / "requirements.yaml").read_text())
    assert spec.requirements in spec.files
    assert (examples / str(spec.requirements)).is_file()


def test_results_of_earlier_jobs_stand_in_the_canonical_form_only_where_there_are_some() -> None:
    assert "inputs" not in canonical(parse(FULL))
    spec = parse(FULL + "inputs: {tuned: {job: first}, base: {job: 0192f3c1-0000-7000-8000-000000000000}}\n")
    assert spec.inputs["tuned"].job == "first"
    assert list(canonical(spec)["inputs"]) == ["base", "tuned"]
    assert from_wire(canonical(spec)) == spec
    assert {"inputs"} <= kind_of(spec).runtime_features(spec) <= set(RUNTIME_FEATURES)


def test_volumes_are_named_with_or_without_a_version() -> None:
    spec = parse(FULL + "inputs: {corpus: {volume: docs, version: 3}, newest: {volume: docs}, tuned: {job: first}}\n")
    assert canonical(spec)["inputs"] == {
        "corpus": {"volume": "docs", "version": 3},
        "newest": {"volume": "docs"},
        "tuned": {"job": "first"},
    }, "what names a job has the hash that it had before there were volumes"
    assert from_wire(canonical(spec)) == spec


@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("{../tuned: {job: first}}", "inputs"),
        ("{.tuned: {job: first}}", "inputs"),
        ("{a/b: {job: first}}", "inputs"),
        ("{tuned: first}", "inputs.tuned"),
        ("{tuned: {job: ''}}", "inputs.tuned.job"),
        ("{tuned: {}}", "inputs.tuned"),
        ("{tuned: {job: first, volume: corpus}}", "inputs.tuned"),
        ("{tuned: {job: first, version: 1}}", "inputs.tuned.version"),
        ("{tuned: {volume: Corpus}}", "inputs.tuned.volume"),
        ("{tuned: {volume: corpus, version: 0}}", "inputs.tuned.version"),
        ("{tuned: {volume: corpus, version: true}}", "inputs.tuned.version"),
        ("{tuned: {jobs: first}}", "inputs.tuned"),
        ("{data: {job: first}}", "inputs.data"),  # among files, too
        ("[first]", "inputs"),
        ("{" + ", ".join(f"a{number}: {{job: first}}" for number in range(17)) + "}", "inputs"),
    ],
)
def test_results_are_named_as_folders_and_by_jobs(written: str, where: str) -> None:
    with pytest.raises(SpecErrors) as refused:
        parse(FULL + f"inputs: {written}\n")
    assert any(error.path.startswith(where) for error in refused.value.errors), refused.value.errors
