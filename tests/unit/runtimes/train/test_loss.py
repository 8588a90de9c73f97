"""The loss in parts of tokens is the loss of all at once, whatever a model does between hidden states and logits."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig

from runtimes.train import loss as loss_module
from runtimes.train.blocks import prepare_blocks
from runtimes.train.loss import MicroBatch, install_loss, summed_loss
from runtimes.train.model import ModelSource, build_model, can_pack
from runtimes.train.weights import filled_units

VOCABULARY = 300
PART_OF_TOKENS = 5  # of 34: six whole parts and a rest
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
PLAIN = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", SHAPE),
    "llama, tied": ("llama", {**SHAPE, "tie_word_embeddings": True}),
    "gemma2, capped logits": ("gemma2", {**SHAPE, "head_dim": 8, "final_logit_softcapping": 0.05}),
    "granite, scaled logits": ("granite", {**SHAPE, "logits_scaling": 3.0}),
    "mixtral, experts": ("mixtral", SHAPE),
    "gpt2, another prefix": ("gpt2", {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, **PLAIN}),
    "opt, a part of its decoder": (
        "opt",
        {**SHAPE, "ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.0, "bos_token_id": 1, "eos_token_id": 1},
    ),
}


def build(name: str) -> Any:
    kind, shape = MODELS[name]
    source = ModelSource(name, AutoConfig.for_model(kind, **shape), None, has_weights=False)
    model = build_model(source)
    *_, filled = filled_units(model, source, seed=1, is_resumed=False)
    return filled.train()


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


PACKED: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: MODELS[name] for name in ("llama", "gemma2, capped logits", "mixtral, experts", "gpt2, another prefix")},
    "mistral, a window of 4": ("mistral", {**SHAPE, "sliding_window": 4}),
    "qwen2": ("qwen2", SHAPE),
    "qwen3": ("qwen3", {**SHAPE, "head_dim": 8}),
    "gemma3": ("gemma3_text", {**SHAPE, "head_dim": 8, "sliding_window": 4}),
    "phi3": ("phi3", SHAPE),
    "gpt_neox": ("gpt_neox", {**SHAPE, "hidden_dropout": 0.0, "attention_dropout": 0.0}),
    "smollm3": ("smollm3", SHAPE),
}
APART = {
    "opt, positions that its mask is not given": MODELS["opt, a part of its decoder"],
    "mamba, a state from token to token": ("mamba", {"vocab_size": VOCABULARY, "hidden_size": 32}),
    "qwen3_next, layers that carry a state": ("qwen3_next", SHAPE),
    "bloom, no positions": ("bloom", {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 1, "n_head": 2}),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_conversation_sees_nothing_of_the_others(name: str) -> None:
    kind, shape = PACKED[name]
    source = ModelSource(name, AutoConfig.for_model(kind, **shape), None, has_weights=False)
    assert can_pack(source)
    model = build_model(source)
    *_, filled = filled_units(model, source, seed=1, is_resumed=False)
    install_loss(filled.eval(), compiles=False)
    torch.manual_seed(3)
    first, second = torch.randint(2, VOCABULARY, (1, 9)), torch.randint(2, VOCABULARY, (1, 12))
    row, weights = torch.cat([first, second], dim=1), torch.ones(1, 20)
    weights[0, 8] = 0.0  # the first token of the second is nobody's target
    positions = torch.cat([torch.arange(9), torch.arange(11)])[None]
    apart = [summed_loss(filled, MicroBatch(each, torch.ones(1, each.shape[1] - 1))) for each in (first, second)]
    torch.testing.assert_close(summed_loss(filled, MicroBatch(row, weights, positions)), apart[0] + apart[1])
    assert not torch.allclose(summed_loss(filled, MicroBatch(row, weights)), apart[0] + apart[1], rtol=1e-4)


@pytest.mark.parametrize("name", APART)
def test_what_would_mix_conversations_is_not_packed(name: str) -> None:
    kind, shape = APART[name]
    assert not can_pack(ModelSource(name, AutoConfig.for_model(kind, **shape), None, has_weights=False))


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize("name", MODELS)
def test_loss_in_parts_is_that_of_all_logits(name: str, checkpointing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "LOGITS_BYTES_MAX", 4 * VOCABULARY * PART_OF_TOKENS)
    torch.manual_seed(3)
    sequences, weights = torch.randint(2, VOCABULARY, (2, 18)), torch.tensor([[1.0], [0.5]]).repeat(1, 17)
    weights[0, 3] = 0.0
    batch = MicroBatch(sequences, weights)
    plain, ours = build(name), build(name)
    logits = plain(input_ids=sequences[:, :-1], use_cache=False).logits
    losses = functional.cross_entropy(logits.transpose(1, 2), sequences[:, 1:], reduction="none")
    wanted = (losses * weights).sum()
    (wanted * 0.3).backward()

    prepare_blocks(ours, checkpointing=checkpointing, compiles=False)
    install_loss(ours, compiles=False)
    found = summed_loss(ours, batch)
    (found * 0.3).backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(ours), gradients(plain))
    with torch.no_grad():
        torch.testing.assert_close(summed_loss(ours.eval(), batch), wanted.detach())
        assert ours(input_ids=sequences).logits.shape == (2, 18, VOCABULARY), "without targets it answers as before"


@pytest.mark.parametrize("name", MODELS)
def test_loss_of_sequences_in_parts_is_that_of_all_logits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "LOGITS_BYTES_MAX", 4 * VOCABULARY * PART_OF_TOKENS)
    torch.manual_seed(4)
    sequences, weights = torch.randint(2, VOCABULARY, (2, 18)), torch.ones(2, 17)
    weights[0, :5] = 0.0
    batch = MicroBatch(sequences, weights)
    plain, ours = build(name), build(name)
    logits = plain(input_ids=sequences[:, :-1], use_cache=False).logits
    losses = functional.cross_entropy(logits.transpose(1, 2), sequences[:, 1:], reduction="none")
    wanted = prefer_the_first((losses * weights).sum(1))
    (wanted * 0.3).backward()

    install_loss(ours, compiles=False)
    found = summed_loss(ours, batch, prefer_the_first)
    (found * 0.3).backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradients(ours), gradients(plain))
    with torch.no_grad():
        torch.testing.assert_close(
            summed_loss(ours.eval(), batch, lambda sums: sums), (losses * weights).sum(1).detach()
        )


def prefer_the_first(losses: torch.Tensor) -> torch.Tensor:
    return -functional.logsigmoid(0.1 * (losses[1] - losses[0]))


def test_logits_of_all_tokens_are_never_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "LOGITS_BYTES_MAX", 4 * VOCABULARY * PART_OF_TOKENS)
    model = build("llama")
    install_loss(model, compiles=False)
    seen: list[int] = []
    model.lm_head.register_forward_hook(lambda module, given, logits: seen.append(logits.numel() // VOCABULARY))
    summed_loss(model, MicroBatch(torch.randint(0, VOCABULARY, (2, 18)), torch.ones(2, 17))).backward()
    assert max(seen) == PART_OF_TOKENS
    assert sum(seen) == 2 * 17


@pytest.mark.parametrize(("checkpointing", "least"), [("full", 0.7), ("selective", 0.95)])
def test_checkpointing_keeps_less_for_the_backward_pass(checkpointing: str, least: float) -> None:
    def kept(how: str) -> int:
        model = build("llama")
        prepare_blocks(model, checkpointing=how, compiles=False)
        sizes: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = model(input_ids=torch.randint(0, VOCABULARY, (4, 64)), use_cache=False)
        del output
        return sum(sizes.values())

    assert kept(checkpointing) < least * kept("none")


def test_selective_checkpointing_keeps_no_scores() -> None:
    model = build("gemma2, capped logits")  # its attention is written out
    prepare_blocks(model, checkpointing="selective", compiles=False)
    length = 61
    output = model(input_ids=torch.randint(0, VOCABULARY, (1, length)), use_cache=False)
    kept = [each.shape for each in gc.get_objects() if isinstance(each, torch.Tensor)]
    assert output.logits.shape in kept
    assert not [shape for shape in kept if shape[-2:] == (length, length) and shape.numel() > length * length]
