"""A Hugging Face Trainer whose training shows while it runs: `souk metrics` draws its losses, learning rate and speed.

python hf_reporting.py --steps 60
"""

import argparse
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

try:
    import souk_report as souk  # for an image of your own: python -m runtimes.reporting > souk_report.py
except ImportError:
    from runtimes import reporting as souk  # the provider's images have it

VOCABULARY, LENGTH = 64, 32


class Counting(torch.utils.data.Dataset):
    """Sequences that count on from some number, in some step."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        ids = (torch.arange(LENGTH) * (1 + index % 7) + index) % VOCABULARY
        return {"input_ids": ids, "labels": ids}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--output", type=Path, default=Path("output"))
    arguments = parser.parse_args()

    set_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    training = TrainingArguments(
        output_dir=str(arguments.output),
        max_steps=arguments.steps,
        per_device_train_batch_size=8,
        learning_rate=1e-3,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        report_to=[],
        seed=0,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training,
        train_dataset=Counting(1024),
        eval_dataset=Counting(64),
        callbacks=[souk.SoukCallback()],
    )
    trainer.train()
    trainer.save_model(str(arguments.output / "final"))


if __name__ == "__main__":
    main()
