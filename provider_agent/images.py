"""The images of the built-in runtimes. Standard library only: preflight uses them too."""

from __future__ import annotations

from typing import Final

TRAIN_IMAGE: Final = "gpusouk/train:latest"  # measures the devices, and trains
SERVE_IMAGE: Final = "gpusouk/serve:latest"  # answers requests
