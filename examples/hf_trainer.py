"""A Hugging Face Trainer as one writes it anywhere: a small GPT-2 learns to count, and resumes where it can.

python hf_trainer.py --steps 60 --save-steps 10
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

VOCABULARY, LENGTH = 64, 32


class Counting(torch.utils.data.Dataset):
    """Sequences that count on from some number, in some step."""

    def __len__(self):
        return 1024

    def __getitem__(self, index):
        ids = (torch.arange(LENGTH) * (1 + index % 7) + index) % VOCABULARY
        return {"input_ids": ids, "labels": ids}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path("results"))
    arguments = parser.parse_args()

    set_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    training = TrainingArguments(
        output_dir=str(arguments.output),
        max_steps=arguments.steps,
        save_steps=arguments.save_steps,
        save_total_limit=2,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=5,
        report_to=[],
        seed=0,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=training, train_dataset=Counting())
    newest = get_last_checkpoint(arguments.output) if arguments.output.is_dir() else None
    print(f"resuming from {newest}" if newest else "beginning anew", flush=True)
    trainer.train(resume_from_checkpoint=newest)
    trainer.save_model(str(arguments.output / "final"))
    losses = {row["step"]: row["loss"] for row in trainer.state.log_history if "loss" in row}
    (arguments.output / "losses.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main()
