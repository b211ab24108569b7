"""The time of one step of a planned training, by the number of accelerators."""

from __future__ import annotations

import dataclasses
import math

from tfrobust.runs.plan import Plan
from tfrobust.runs.plan_work import Work


@dataclasses.dataclass(frozen=True)
class Step:
    """Seconds of the parts of one step on some replicas. Reading overlaps computing; sending does not.

    Attributes:
        computing: of forward and backward passes.
        reading: of the input pipeline.
        gradients: of the all-reduce of the gradients.
        normalization: of the all-reduces of batch norm, which are small and take the latency alone.
    """

    computing: float
    reading: float
    gradients: float
    normalization: float

    @property
    def seconds(self) -> float:
        """Seconds of the step."""
        return max(self.computing, self.reading) + self.gradients + self.normalization

    @property
    def limit(self) -> str:
        """The name of the longest part."""
        return max(dataclasses.fields(self), key=lambda field: getattr(self, field.name)).name


def step_of(work: Work, plan: Plan, replicas: int) -> Step:
    """Return the parts of a step on `replicas` accelerators, each with an equal part of the global batch.

    Gradients: a ring, in which each replica sends 2 (N - 1) / N of the bytes over the slowest link. Batch norm: a tree,
    2 ceil(log2 N) hops for each sum.
    """
    rows = work.batch_size / replicas
    link = plan.inside if replicas <= plan.per_machine else plan.between
    return Step(
        computing=rows * work.operations / plan.rate(rows),
        reading=rows / (work.images_per_core * plan.cores),
        gradients=2 * (replicas - 1) / replicas * work.gradient_bytes / link,
        normalization=work.sums * 2 * math.ceil(math.log2(replicas)) * plan.latency,
    )


def speedup(work: Work, plan: Plan, replicas: int) -> float:
    """Return how many times as fast as one accelerator the replicas are."""
    return step_of(work, plan, 1).seconds / step_of(work, plan, replicas).seconds
