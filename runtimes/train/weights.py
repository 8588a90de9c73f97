"""The weights of a model that was built without any: read or drawn a decoder block at a time.

A rank shards each block before it fills the next one, so that it never holds more than its own part and one block.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from runtimes.contract import sha256_file
from runtimes.train.adapters import A_ENDING, B_ENDING, adapted_modules, draw_adapter, is_adapter, merge, plain_name
from runtimes.train.config import Lora
from runtimes.train.errors import BadData
from runtimes.train.model import INDEX_FILE, WEIGHTS_FILE, ModelSource, decoder_blocks

INDEX_BYTES_MAX = 64 << 20
NAMED_MAX = 5  # of the weights that a message lists


def filled_units(model: nn.Module, source: ModelSource, *, seed: int, is_resumed: bool) -> Iterator[nn.Module]:
    """Each decoder block once it is filled, on the CPU; at last the model, with all that was left of it.

    `model` is on the meta device. Its values are the source's weights where it has some, else drawn from `seed`, the
    same on any number of ranks. `is_resumed`: a checkpoint will overwrite the parameters, so they stay zero; of a model
    with adapters only these are in it. Raises BadData for weights that are missing, cannot be read or have another
    shape.
    """
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    adapted = adapted_modules(name for name, _ in tensors)
    names: dict[int, list[str]] = {}  # of each tensor, as in the plain model: those that are tied have several
    for name, tensor in tensors:
        names.setdefault(id(tensor), []).append(plain_name(name, adapted))
    units = [*decoder_blocks(model), model]
    _refuse_shared(units[:-1])
    owners, filled = _owners(model), set[nn.Module]()
    with ExitStack() as stack:
        values: _Values = _Zeros() if is_resumed else _Drawn()
        if source.has_weights and (adapted or not is_resumed):
            parameters = [names[id(parameter)] for name, parameter in model.named_parameters() if not is_adapter(name)]
            values = _open_weights(source, parameters, stack, seed=seed)
        if adapted:
            values = _Adapted(values, seed=seed, is_resumed=is_resumed)
        for number, unit in enumerate(units):
            modules = list(_children_first(unit, filled))
            made: dict[int, torch.Tensor] = {}
            own = {module for module in modules if _make_tensors(module, made, names, values)}
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(zlib.crc32(f"{seed}/{number}".encode()))
                for module in modules:
                    # What is marked as read stays. A module may draw what its children own; one around blocks that were
                    # filled before draws its own alone.
                    if module in own or not any(child in filled for child in module.modules()):
                        owners[module]._init_weights(module)
            filled.update(modules)
            yield unit
            _return_freed_memory()  # of the unit: the caller has kept its part


def merged_weights(
    plain: nn.Module, source: ModelSource, adapters: Mapping[str, torch.Tensor], lora: Lora
) -> Iterator[tuple[list[str], torch.Tensor]]:
    """The weights of the model that computes as the base with its adapters does, in the source's dtype, one at a time.

    Each comes with its names in the plain model: tied ones have several. `plain`: the model without adapters, on the
    meta device. The base is read again a tensor at a time, as it was published: what a rank trains with may be rounded
    to the dtype that it computes in. Raises BadData.
    """
    from transformers.pytorch_utils import Conv1D

    tensors = plain.state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), []).append(name)
    parameters = [names[id(parameter)] for parameter in plain.parameters()]
    with ExitStack() as stack, torch.no_grad():
        values = _open_weights(source, parameters, stack, seed=0)
        for same in names.values():
            name, tensor = same[0], tensors[same[0]]
            module = name.rpartition(".")[0]
            a, b = (adapters.get(module + ending) for ending in (A_ENDING, B_ENDING))
            is_adapted = a is not None and name.endswith(".weight")
            value = torch.empty_like(tensor, device="cpu", dtype=torch.float32 if is_adapted else None)
            if not values.read(same, value):
                continue  # a buffer that the base's files do not have either
            if is_adapted and a is not None and b is not None:
                is_transposed = isinstance(plain.get_submodule(module), Conv1D)
                value = merge(value, a, b, lora=lora, is_transposed=is_transposed).to(source.dtype)
            yield same, value


def base_digest(source: ModelSource) -> str:
    """What adapters belong to: SHA-256, in hex, of the configuration and every byte of the weights.

    Names, shapes and sizes would not do: a base and what was fine-tuned from it, which is mistaken for it most easily,
    have the same. Raises BadData.
    """
    folder = source.folder or Path()
    digest = hashlib.sha256()
    try:
        for name in ["config.json", *sorted(set(_read_index(folder).values()))]:
            digest.update(f"{name} {sha256_file(folder / name)}\n".encode())
    except OSError as error:
        raise BadData(f"the model's weights cannot be read: {error!s:.200}") from error
    return digest.hexdigest()


def _return_freed_memory() -> None:
    """Give it back to the system: glibc keeps what lies between blocks in use, a tenth of a large model's part."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries lack it
    if trim is not None:
        trim(0)


def _children_first(module: nn.Module, filled: set[nn.Module]) -> Iterator[nn.Module]:
    """Every module that is not in a unit that was filled before, each after its children, as transformers goes."""
    if module not in filled:
        for child in module.children():
            yield from _children_first(child, filled)
        yield module


def _make_tensors(
    module: nn.Module, made: dict[int, torch.Tensor], names: dict[int, list[str]], values: _Values
) -> bool:
    """Give what the module itself owns on the meta device a place on the CPU, and its value where there is one."""
    tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
    missing = [(table, name) for table in tables for name, each in table.items() if each is not None and each.is_meta]
    for table, name in missing:
        tensor = table[name]
        if id(tensor) not in made:
            made[id(tensor)] = _make(tensor, names[id(tensor)], values)
        table[name] = made[id(tensor)]
    return bool(missing)


def _refuse_shared(blocks: list[nn.Module]) -> None:
    seen: set[int] = set()
    for block in blocks:
        found = {id(parameter) for parameter in block.parameters()}
        if seen & found:
            raise BadData("the model's blocks share weights, which a training here would part")
        seen |= found


def _make(tensor: torch.Tensor, names: list[str], values: _Values) -> torch.Tensor:
    value: Any = torch.empty_like(tensor, device="cpu")
    if isinstance(tensor, nn.Parameter):
        value = nn.Parameter(value, requires_grad=tensor.requires_grad)
    if values.read(names, value):
        value._is_hf_initialized = True  # transformers' mark
    made: torch.Tensor = value
    return made


def _owners(model: nn.Module) -> dict[nn.Module, Any]:
    """For each module the innermost transformers model around it, which knows how its weights are drawn."""
    from transformers import PreTrainedModel

    owners: dict[nn.Module, Any] = {}

    def walk(module: nn.Module, owner: nn.Module) -> None:
        owners[module] = owner = module if isinstance(module, PreTrainedModel) else owner
        for child in module.children():
            walk(child, owner)

    walk(model, model)
    return owners


class _Values(Protocol):
    def read(self, names: Iterable[str], into: torch.Tensor) -> bool:
        """Fill the tensor that has these names; False where transformers shall."""


class _Drawn:
    def read(self, names: Iterable[str], into: torch.Tensor) -> bool:
        return False


class _Zeros:
    def read(self, names: Iterable[str], into: torch.Tensor) -> bool:
        if not isinstance(into, nn.Parameter):
            return False  # few checkpoints have buffers
        with torch.no_grad():
            into.zero_()
        return True


class _Adapted:
    """Adapters as peft draws them, or zero where a checkpoint will fill them; all else from the base."""

    def __init__(self, base: _Values, *, seed: int, is_resumed: bool) -> None:
        self._base, self._seed, self._is_resumed = base, seed, is_resumed

    def read(self, names: Iterable[str], into: torch.Tensor) -> bool:
        name = next(filter(is_adapter, names), None)
        if name is None:
            return self._base.read(names, into)
        if self._is_resumed:
            return _Zeros().read(names, into)
        draw_adapter(name, into, seed=self._seed)
        return True


class _Stored:
    """Weights by name, from the files of a folder or from a model that was loaded whole."""

    def __init__(self, folder: Path, files: dict[str, str], whole: dict[str, torch.Tensor], stack: ExitStack):
        self._folder, self._files, self._whole, self._stack = folder, files, whole, stack
        self._opened: dict[str, Any] = {}

    def read(self, names: Iterable[str], into: torch.Tensor) -> bool:
        """Copy the tensor that has one of these names; False where there is none. Raises BadData."""
        name = next((name for name in names if name in self._files or name in self._whole), None)
        if name is None:
            return False
        try:
            # What was loaded whole goes as it is taken.
            value = self._whole.pop(name) if name in self._whole else self._file(self._files[name]).get_tensor(name)
        except (SafetensorError, FileNotFoundError) as error:
            raise BadData(f"the model's weights cannot be read: {error!s:.200}") from error
        if value.shape != into.shape:
            raise BadData(
                f"the model's weight {name} has the shape {tuple(value.shape)}, its configuration says "
                f"{tuple(into.shape)}"
            )
        with torch.no_grad():
            into.copy_(value)
        return True

    def _file(self, name: str) -> Any:
        if name not in self._opened:
            opening: Any = safe_open(str(self._folder / name), framework="pt")
            self._opened[name] = self._stack.enter_context(opening)
        return self._opened[name]


def _open_weights(source: ModelSource, parameters: list[list[str]], stack: ExitStack, *, seed: int) -> _Stored:
    """Read by name where the files name every parameter as the model does; else transformers converts the whole."""
    folder = source.folder or Path()  # it has weights, so it has a folder
    files = _read_index(folder)
    is_plain = getattr(source.config, "quantization_config", None) is None
    if is_plain and all(any(name in files for name in names) for names in parameters):
        return _Stored(folder, files, {}, stack)
    return _Stored(folder, {}, _load_whole(source, seed=seed), stack)


def _read_index(folder: Path) -> dict[str, str]:
    """In which file of the folder each tensor is; raises BadData."""
    try:
        if (folder / WEIGHTS_FILE).is_file():
            opening: Any = safe_open  # untyped there
            with opening(str(folder / WEIGHTS_FILE), framework="pt") as file:
                return dict.fromkeys(file.keys(), WEIGHTS_FILE)
        with (folder / INDEX_FILE).open("rb") as index:
            files = json.loads(index.read(INDEX_BYTES_MAX))["weight_map"]
    except (SafetensorError, FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadData(f"the model's weights cannot be read: {error!s:.200}") from error
    if not isinstance(files, dict) or any(
        not isinstance(each, str) or Path(each).name != each or not each.endswith(".safetensors")
        for each in files.values()
    ):
        raise BadData(f"the model's {INDEX_FILE} names files out of its folder")
    return files


def _load_whole(source: ModelSource, *, seed: int) -> dict[str, torch.Tensor]:
    """By transformers, which knows former names and how experts are packed; every rank holds the model for a while."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    load: Any = AutoModelForCausalLM.from_pretrained  # typed there as if it never told what it found
    try:
        model, info = load(
            str(source.folder),
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (SafetensorError, FileNotFoundError, ValueError, RuntimeError, KeyError) as error:
        if "allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        raise BadData(f"the model's weights cannot be read: {error!s:.200}") from error
    missing = sorted(info["missing_keys"])
    if missing:
        listed = ", ".join(missing[:NAMED_MAX]) + (", ..." if len(missing) > NAMED_MAX else "")
        raise BadData(f"the model's files lack {len(missing)} of its weights: {listed}")
    whole: dict[str, torch.Tensor] = model.state_dict()
    return whole
