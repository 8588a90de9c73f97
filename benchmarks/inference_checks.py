"""Verified inference: which lies it finds, how often it accuses the honest, and what it costs.

A small Llama is trained on Python's own help texts, so that its activations are a language model's and not noise. Then

  1. honest replicas answer (alone, in a batch of 16, on one thread and on two, with other kernels), and a checker reads
     each answer once; the farthest distance over all of them, times MARGIN, are the bounds (calibration prompts);
  2. on other prompts honest replicas answer again: whoever is accused is a false alarm;
  3. on these prompts liars answer: other weights, precisions, prompts, tokens, sampling. Every liar says in its binding
     what an honest replica would say, so that what it says of itself gives nothing away.

The lies have no part in the bounds. Intervals are Wilson's, of 95 %. `shipped` judges the same answers by the bounds
that the engine carries (runtimes/serve/verification.py).

    python -m benchmarks.inference_checks [--answers 60] [--write]
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from pydoc_data.topics import topics
from queue import SimpleQueue
from typing import Any

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.record import publish
from runtimes.serve.commitments import Binding, Committer
from runtimes.serve.engines.souk.batch import Batch, Piece, Sequence
from runtimes.serve.engines.souk.check import Checked, Claimed, check_claim
from runtimes.serve.engines.souk.model import Model
from runtimes.serve.engines.souk.request import InferenceRequest
from runtimes.serve.engines.souk.sampling import Sampling
from runtimes.serve.engines.souk.text import Texts
from runtimes.serve.verification import BOUNDS, Bounds
from runtimes.train.data.tokenizer import END_OF_TEXT, PADDING, train_tokenizer

CACHE = Path(__file__).parent.parent / ".cache" / "inference_checks"
VOCABULARY, CONTEXT = 1024, 512
SHAPE = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4}
SMALL = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2}
STEPS, BATCH_ROWS, ROW_TOKENS = 150, 12, 64
TOKENS_OUT = 64
PROMPT_TOKENS = (24, 96)
MARGIN = 3.0
FLOORS = Bounds(missed_share=3 / 128, error_mean=0.02, error_median=0.0, gap=1e-3)  # what is too fine to be measured
NEVER = Bounds(missed_share=2.0, error_mean=1e9, error_median=1e9, gap=2.0)
SAMPLINGS = (Sampling(temperature=0), Sampling(1.0, 1.0, 7), Sampling(0.8, 0.9, 7))
SECONDS_MAX = 120.0  # for one round of answers
Network = Any  # a causal model of transformers, partly untyped


@dataclass(frozen=True)
class Case:
    """One request, one seed each."""

    prompt: list[int]
    sampling: Sampling


@dataclass
class Replica:
    """A replica, honest or not: `network` writes; the rest is how it computes, and what it is given instead."""

    network: Network
    slots: int = 16
    threads: int = 1
    is_math: bool = False  # attention by another kernel
    prompt: Callable[[list[int]], list[int]] = lambda ids: ids
    sampling: Callable[[Sampling], Sampling] = lambda sampling: sampling
    output: Callable[[list[int]], list[int]] = lambda ids: ids
    reads: Network | None = None  # the true model only reads what another wrote, and commits to that
    seconds: float = field(default=0.0)


def main() -> None:
    """Train or load, calibrate, accuse, attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=60, help="of each replica")
    arguments, _ = parser.parse_known_args()
    library: Any = transformers  # partly untyped
    library.logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokenizer = train_tokenizer(topics.values(), VOCABULARY)
    texts = Texts(library.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END_OF_TEXT, pad_token=PADDING))
    stream = [token for text in topics.values() for token in tokenizer.encode(text).ids]
    true, other, small = (_trained(name, shape, seed, stream) for name, shape, seed in MODELS)
    cases = _cases(stream, 2 * arguments.answers)
    figures: dict[str, Any] = {"answers": arguments.answers, "tokens_out": TOKENS_OUT, "margin": MARGIN}
    for dtype in ("float32", "bfloat16"):
        network = true if dtype == "float32" else _copied(true).to(torch.bfloat16)
        figures[dtype] = _measure(
            network, true, other, small, texts, cases[: arguments.answers], cases[arguments.answers :]
        )
    publish("inference_checks", figures)


MODELS = (("true", SHAPE, 0), ("other", SHAPE, 1), ("small", SMALL, 2))


def _measure(
    network: Network,
    exact: Network,
    other: Network,
    small: Network,
    texts: Texts,
    calibration: list[Case],
    evaluation: list[Case],
) -> dict[str, Any]:
    dtype = network.dtype
    checker = _model(_copied(network))
    honest = {
        "alone": Replica(network, slots=1),
        "batch of 16": Replica(network),
        "two threads": Replica(network, threads=2),
        "other attention kernel": Replica(network, is_math=True),
    }
    farthest = [one for replica in honest.values() for one in _checked(replica, calibration, checker, texts)]
    bounds = _bounds(farthest)
    result: dict[str, Any] = {
        "bounds": asdict(bounds),
        "honest_farthest": _farthest(farthest),
        "honest": {},
        "lies": {},
    }
    for name, replica in honest.items():
        result["honest"][name] = _judged(_checked(replica, evaluation, checker, texts), bounds, checker.dtype)
    result["cost"] = _cost(honest, evaluation, checker, texts)
    for name, replica in _liars(network, exact, other, small, dtype).items():
        result["lies"][name] = _judged(_checked(replica, evaluation, checker, texts), bounds, checker.dtype)
    return result


def _liars(network: Network, exact: Network, other: Network, small: Network, dtype: torch.dtype) -> dict[str, Replica]:
    def cast(model: Network) -> Network:
        return _copied(model).to(dtype)

    liars = {
        "weights: another seed": Replica(cast(other)),
        "weights: one layer skipped": Replica(cast(_without_layer(exact))),
        "weights: a smaller model": Replica(cast(small)),
        "weights: a smaller model writes, the true one reads": Replica(cast(small), reads=network),
        "precision: weights rounded to int8": Replica(cast(_rounded(exact, 127))),
        "precision: weights rounded to int4": Replica(cast(_rounded(exact, 7))),
        "prompt: one token changed": Replica(
            network, prompt=lambda ids: [*ids[:-4], (ids[-4] + 1) % 900 + 3, *ids[-3:]]
        ),
        "prompt: its first token changed": Replica(network, prompt=lambda ids: [(ids[0] + 1) % 900 + 3, *ids[1:]]),
        "prompt: cut to its last half": Replica(network, prompt=lambda ids: ids[len(ids) // 2 :]),
        "prompt: its first 8 tokens dropped": Replica(network, prompt=lambda ids: ids[8:]),
        "prompt: its first 8 tokens are padding": Replica(network, prompt=lambda ids: [1] * 8 + ids[8:]),
        "tokens: one replaced": Replica(network, output=lambda ids: [*ids[:30], (ids[30] + 1) % 900 + 3, *ids[31:]]),
        "tokens: the last one replaced": Replica(network, output=lambda ids: [*ids[:-1], (ids[-1] + 1) % 900 + 3]),
        "sampling: temperature + 0.3": Replica(network, sampling=lambda s: replace(s, temperature=s.temperature + 0.3)),
        "sampling: temperature + 0.05": Replica(
            network, sampling=lambda s: replace(s, temperature=s.temperature + 0.05)
        ),
        "sampling: another seed (not the greedy ones)": Replica(
            network, sampling=lambda s: replace(s, seed=s.seed + 1)
        ),
    }
    if dtype == torch.float32:
        liars["precision: bfloat16 for float32"] = Replica(_copied(exact).to(torch.bfloat16))
    for rate in (1e-3, 1e-4, 1e-5):
        liars[f"weights: one step of fine-tuning at {rate:g}"] = Replica(cast(_tuned(exact, rate)))
    return liars


# --- answers and checks


def _checked(replica: Replica, cases: list[Case], checker: Model, texts: Texts) -> list[Checked]:
    """Its answers as the checker sees them; where it draws greedily what should be so, another seed is no lie."""
    if (
        replica.sampling(SAMPLINGS[0]).as_json() == SAMPLINGS[0].as_json()
        and replica.sampling(SAMPLINGS[1]) != SAMPLINGS[1]
    ):
        cases = [case for case in cases if case.sampling.temperature]
    claims = _answers(replica, cases, texts)
    return [check_claim(claim, _ask(case), checker, texts, NEVER) for claim, case in zip(claims, cases, strict=True)]


def _answers(replica: Replica, cases: list[Case], texts: Texts) -> list[Claimed]:
    """What it writes, with commitments whose binding is what an honest replica's would be."""
    model = _model(replica.network, replica.slots)
    answers: SimpleQueue[tuple[int, Piece]] = SimpleQueue()
    sequences = [
        Sequence(
            prompt=replica.prompt(case.prompt),
            sampling=replica.sampling(case.sampling),
            choice=0,
            max_tokens=TOKENS_OUT,
            stops=(),
            deliver=lambda piece, index=index: answers.put((index, piece)),  # type: ignore[misc]
            commits=True,
            ignores_end=True,
        )
        for index, case in enumerate(cases)
    ]
    with _computing(replica):
        began = time.perf_counter()
        batch = Batch(model, texts)
        commitments, left = [b""] * len(cases), len(cases)
        batch.submit(sequences)
        while left:
            index, piece = answers.get(timeout=SECONDS_MAX)
            if piece.ending:
                left, commitments[index] = left - 1, piece.commitment
        replica.seconds = time.perf_counter() - began
        batch.close()
    claims = []
    for case, sequence, commitment in zip(cases, sequences, commitments, strict=True):
        output = replica.output(sequence.output)
        data = _read_by(replica.reads, case.prompt, output) if replica.reads is not None else commitment
        binding = Binding.of(case.prompt, "true", case.sampling.as_json(), output)
        claims.append(Claimed(0, texts.write(output), "length", output, _with_binding(data, binding)))
    return claims


def _read_by(network: Network, prompt: list[int], output: list[int]) -> bytes:
    model = _model(network)
    rows = model.read_whole([*prompt, *output[:-1]], 1).hidden_rows(0)
    committer = Committer(model.hidden_size, model.dtype)
    committer.add_prompt(rows[: len(prompt)])
    for row in rows[len(prompt) :]:
        committer.add_decoded(row)
    return committer.finish(Binding.of([], "", {}, []))


def _with_binding(commitment: bytes, binding: Binding) -> bytes:
    digests = binding.prompt + binding.weights + binding.sampling + binding.output
    head = 17
    return commitment[:head] + digests + commitment[head + len(digests) :]


@contextlib.contextmanager
def _computing(replica: Replica) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(replica.threads)
    try:
        with sdpa_kernel(SDPBackend.MATH) if replica.is_math else contextlib.nullcontext():
            yield
    finally:
        torch.set_num_threads(before)


def _ask(case: Case) -> InferenceRequest:
    options = (1, TOKENS_OUT, (), None, False, False, True, True, "")
    return InferenceRequest("completion", [case.prompt], case.sampling, *options)


def _copied(network: Network) -> Network:
    network.base_model._forward_hooks.clear()
    return copy.deepcopy(network)


def _model(network: Network, slots: int = 1) -> Model:
    network.base_model._forward_hooks.clear()  # of the Model before: each keeps hidden states for itself
    return Model(network, slots=slots, context=CONTEXT, digest="true")


# --- what was measured


def _bounds(checked: list[Checked]) -> Bounds:
    far = _farthest(checked)
    floors = asdict(FLOORS)
    return Bounds(**{name: max(MARGIN * far[name], floor) for name, floor in floors.items()})


def _farthest(checked: list[Checked]) -> dict[str, float]:
    return {name: max(one.numbers[name] for one in checked) for name in asdict(FLOORS)}


def _judged(checked: list[Checked], bounds: Bounds, dtype: str) -> dict[str, Any]:
    by_what = {
        "binding": [any(fault.startswith("said_") for fault in one.faults) for one in checked],
        "shape": ["shape" in one.faults for one in checked],
        "activations": [_is_beyond(one, bounds, ("missed_share", "error_mean", "error_median")) for one in checked],
        "drawing": [_is_beyond(one, bounds, ("gap",)) for one in checked],
    }
    found = [any(column) for column in zip(*by_what.values(), strict=True)]
    names = tuple(asdict(FLOORS))
    shipped = [
        bool({"shape", "text", "finish"} & set(one.faults)) or _is_beyond(one, BOUNDS[dtype], names) for one in checked
    ]
    measured = [one.numbers for one in checked if one.numbers]
    medians = {name: sorted(one[name] for one in measured)[len(measured) // 2] for name in names} if measured else {}
    return {
        "answers": len(checked),
        "found": sum(found),
        "interval_percent": _wilson(sum(found), len(found)),
        "shipped": sum(shipped),
        "by": {name: sum(column) for name, column in by_what.items() if any(column)},
        "median": {name: round(value, 5) for name, value in medians.items()},
    }


def _is_beyond(one: Checked, bounds: Bounds, names: tuple[str, ...]) -> bool:
    return bool(one.numbers) and any(one.numbers[name] > getattr(bounds, name) for name in names)


def _wilson(found: int, count: int) -> list[float]:
    z, share = 1.96, found / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return [round(100 * max(middle - half, 0.0), 1), round(100 * min(middle + half, 1.0), 1)]


def _cost(honest: dict[str, Replica], cases: list[Case], checker: Model, texts: Texts) -> dict[str, float]:
    claims = _answers(honest["alone"], cases, texts)
    began = time.perf_counter()
    for claim, case in zip(claims, cases, strict=True):
        check_claim(claim, _ask(case), checker, texts)
    check = time.perf_counter() - began
    tokens = len(cases) * TOKENS_OUT
    size = sum(len(claim.commitment) for claim in claims)
    raw = sum((len(case.prompt) + TOKENS_OUT - 1) * checker.hidden_size * 2 for case in cases)
    return {
        "bytes_per_token_out": round(size / tokens, 1),
        "bytes_raw_over_committed": round(raw / size, 1),
        "write_ms_per_token_alone": round(1000 * honest["alone"].seconds / tokens, 3),
        "write_ms_per_token_in_batch": round(1000 * honest["batch of 16"].seconds / tokens, 3),
        "check_ms_per_token": round(1000 * check / tokens, 3),
        "commit_ms_per_token": round(1000 * _commit_seconds(checker) / TOKENS_OUT, 3),
    }


def _commit_seconds(model: Model) -> float:
    rows = torch.randn(TOKENS_OUT, model.hidden_size).numpy()
    rounds, began = 10, time.perf_counter()
    for _ in range(rounds):
        committer = Committer(model.hidden_size, "float32")
        committer.add_prompt(rows)
        for row in rows:
            committer.add_decoded(row)
        committer.finish(Binding.of([], "", {}, []))
    return (time.perf_counter() - began) / rounds


# --- models and prompts


def _trained(name: str, shape: dict[str, int], seed: int, stream: list[int]) -> Network:
    folder = CACHE / f"{name}-{STEPS}"
    if folder.is_dir():
        saved: Network = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return saved.eval()
    torch.manual_seed(seed)
    make: Any = transformers.LlamaConfig
    config = make(
        vocab_size=VOCABULARY,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=0,
        **shape,
    )
    network: Network = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=STEPS)
    for _ in range(STEPS):
        _step(network, optimizer, _rows(stream))
        schedule.step()
    network.save_pretrained(folder)
    return network.eval()


def _rows(stream: list[int]) -> torch.Tensor:
    starts = torch.randint(len(stream) - ROW_TOKENS, (BATCH_ROWS,)).tolist()
    return torch.tensor([stream[start : start + ROW_TOKENS] for start in starts])


def _step(network: Network, optimizer: torch.optim.Optimizer, rows: torch.Tensor) -> None:
    network.train()
    loss = network(input_ids=rows, labels=rows, use_cache=False).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    network.eval()


def _tuned(network: Network, rate: float) -> Network:
    tuned = _copied(network)
    torch.manual_seed(3)
    rows = torch.randint(VOCABULARY, (BATCH_ROWS, ROW_TOKENS))
    _step(tuned, torch.optim.AdamW(tuned.parameters(), lr=rate), rows)
    return tuned


def _without_layer(network: Network) -> Network:
    shorter = _copied(network)
    middle = SHAPE["num_hidden_layers"] // 2
    shorter.model.layers = torch.nn.ModuleList(
        [layer for number, layer in enumerate(shorter.model.layers) if number != middle]
    )
    for number, layer in enumerate(shorter.model.layers):
        layer.self_attn.layer_idx = number
    shorter.config.num_hidden_layers = len(shorter.model.layers)
    return shorter


@torch.no_grad()
def _rounded(network: Network, levels: int) -> Network:
    """Each row of each matrix rounded to so many levels either side, as weight-only quantisation does."""
    rounded = _copied(network)
    for weights in rounded.parameters():
        if weights.ndim == 2:
            scale = weights.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / levels
            weights.copy_((weights / scale).round() * scale)
    return rounded


def _cases(stream: list[int], count: int) -> list[Case]:
    generator = torch.Generator().manual_seed(11)
    cases = []
    for number in range(count):
        size = int(torch.randint(*PROMPT_TOKENS, (1,), generator=generator))
        start = int(torch.randint(len(stream) - size, (1,), generator=generator))
        sampling = replace(SAMPLINGS[number % len(SAMPLINGS)], seed=number)
        cases.append(Case(stream[start : start + size], sampling))
    return cases


if __name__ == "__main__":
    main()
