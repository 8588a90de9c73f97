"""`kind: train`: the built-in training runtime, or a command in its place."""

from __future__ import annotations

from jobs.kinds.base import Kind
from jobs.spec import Spec
from jobs.spec.kinds.train import TrainSpec
from provider_agent.protocol import Program


class Train(Kind):
    """A training, which resumes from its newest checkpoint when an attempt is lost."""

    spec_kind = TrainSpec()

    def program(self, spec: Spec) -> Program:
        """The training runtime for a `train` section."""
        own = super().program(spec)
        return own if spec.section is None else own.model_copy(update={"runtime": "train"})
