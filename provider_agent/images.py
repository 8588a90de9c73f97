"""The image that measures the devices and trains. Standard library only: preflight asks for it too."""

from __future__ import annotations

from typing import Final

TRAIN_IMAGE: Final = "gpusouk/train:latest"
