"""A Lightning script as one writes it anywhere: it saves what ModelCheckpoint saves, and resumes from the last of it.

python lightning_script.py STEPS SECONDS_A_STEP
"""

import sys
import time
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

RESULTS = Path("results")


class Line(pl.LightningModule):
    """Learns a line, slowly."""

    def __init__(self, seconds):
        super().__init__()
        self.model, self.seconds = torch.nn.Linear(4, 1), seconds

    def training_step(self, batch, _):
        time.sleep(self.seconds)
        x, y = batch
        return torch.nn.functional.mse_loss(self.model(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.05)


def main():
    steps, seconds = int(sys.argv[1]), float(sys.argv[2])
    pl.seed_everything(0)
    x = torch.randn(64, 4)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
    saving = ModelCheckpoint(dirpath=RESULTS, every_n_train_steps=8, save_top_k=1, save_last=True)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_steps=steps,
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = RESULTS / "last.ckpt"
    model = Line(seconds)
    print(f"resuming from {last}" if last.exists() else "beginning anew", flush=True)
    trainer.fit(model, data, ckpt_path=str(last) if last.exists() else None)
    Path("output").mkdir(exist_ok=True)
    torch.save(model.state_dict(), "output/model.pt")
    print(f"ended at step {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main()
