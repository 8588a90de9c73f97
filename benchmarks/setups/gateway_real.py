"""An engine that computes, for benchmarks/gateway.py: our own, on a tiny Llama with random weights, on one core.

`python -m benchmarks.setups.gateway_real FOLDER` makes the model; nothing else here loads torch in the benchmark.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.setups.gateway_peers import CACHE, OTHER_CORE, Child, NotMeasured
from runtimes.contract import SERVE_SOCKET
from tests.fakes.engine import free_port
from tests.fakes.serving_stack import Elsewhere

MODEL = CACHE / "gateway-model"
SLOTS = 256
MAKE_SECONDS, START_SECONDS = 120, 60
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"


def start_engine(folder: Path, stack: ExitStack) -> Elsewhere:
    """Two of them on one core, one with a port and one with a socket: only one is asked at a time."""
    if not (MODEL / "config.json").exists():
        made = subprocess.run(
            [sys.executable, "-m", "benchmarks.setups.gateway_real", str(MODEL)],
            capture_output=True,
            text=True,
            timeout=MAKE_SECONDS,
            check=False,
        )
        if made.returncode:
            raise NotMeasured(made.stderr[-600:])
    at = Elsewhere(port=free_port(), uds=Path(tempfile.mkdtemp(dir=folder)) / SERVE_SOCKET)
    for where in (["--port", str(at.port)], ["--uds", str(at.uds)]):
        argv = [sys.executable, "-m", "runtimes.serve.engines.souk", "--model", str(MODEL), "--served-as", "fake"]
        argv += [*where, "--slots", str(SLOTS), "--chat-template", str(MODEL / "template.jinja")]
        child = Child(argv, core=OTHER_CORE, folder=folder, env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})
        stack.callback(child.close)
        child.wait_for(at.port)  # the second starts while the first serves, and takes no longer
    return at


def make_model(folder: Path) -> None:
    """A Llama of some 100,000 weights that reads bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(7)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    config = LlamaConfig(
        vocab_size=len(alphabet),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=None,
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "template.jinja").write_text(TEMPLATE)
    LlamaForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
