"""`kind: train`: the built-in training runtime, or a command in its place."""

from __future__ import annotations

import posixpath

from jobs.kinds.base import Kind
from jobs.models import ArtifactPart, FollowingEvaluation, Job
from jobs.spec import Spec, from_wire
from jobs.spec.kinds.eval import PINNED
from jobs.spec.kinds.train import TrainSpec, reads_s3, train_of
from jobs.states import JobState
from marketplace.foundation import clock
from provider_agent.protocol import Program
from runtimes.contract import shipped_models


class Train(Kind):
    """A training, which resumes from its newest checkpoint when an attempt is lost."""

    spec_kind = TrainSpec()
    outlives_a_lost_node = True
    has_predicted_steps = True

    def program(self, spec: Spec) -> Program:
        """The training runtime for a `train` section."""
        own = super().program(spec)
        return own if spec.section is None else own.model_copy(update={"runtime": "train"})

    def keeps_prepared(self, job: Job) -> bool:
        """Tokens, of our own training alone."""
        return not job.spec.get("command")

    def close(self, job: Job) -> None:
        """What completed is evaluated where its file asks for that; jobs/evaluations.py launches it."""
        if job.state == JobState.COMPLETED and job.spec.get("evaluation"):
            FollowingEvaluation.objects.create(training=job, next_try_at=clock.now())

    def pins_input(self, job: Job) -> bool:
        """Not with data on S3, nor with a model by its name on the hub: owners may change them between two attempts."""
        if not super().pins_input(job):
            return False
        train = train_of(from_wire(job.spec))
        if train is not None and reads_s3(train):
            return False
        if train is None or train.model in shipped_models() or PINNED.fullmatch(train.model):
            return True
        parts = ArtifactPart.objects.filter(artifact=job.input_artifact).values_list("files", flat=True)
        folder = posixpath.normpath(train.model)  # as the node finds it: `model/` and `./model` are one
        if folder.partition("/")[0] in job.spec.get("inputs", {}):
            return True  # neither what an earlier job left nor a volume's version changes
        return any(file["path"] == f"{folder}/config.json" for files in parts for file in files)
