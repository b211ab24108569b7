"""The assumptions under which a dry run plans a training on many accelerators."""

from __future__ import annotations

import dataclasses
import math

import keras

from tfrobust.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """Assumptions of a plan. The defaults are those of NVIDIA's DGX A100, with eight A100 in each machine.

    Attributes:
        replicas: numbers of accelerators, each of which divides the batch: one column each.
        name: of the accelerator, for display.
        operations_per_second: operations per second of one accelerator with large batches, > 0; None: 23.5e12 in
            float32 and 61.3e12 in mixed precision.
        half_batch: examples per accelerator with which half of that rate is reached, >= 0.
        per_machine: accelerators per machine, >= 1.
        inside: bytes per second from one accelerator to another one of its machine, > 0.
        between: bytes per second of an accelerator's share of the links between machines, > 0.
        latency: seconds of one hop of an all-reduce, >= 0; an assumption without a source.
        cores: CPU cores per accelerator for the input pipeline, > 0.
        images_per_core: examples per second that one core reads and augments; None: measured on this machine.
        examples: training examples; None: those of the data set. It allows a plan from a sample of the data.
        test_examples: examples of the evaluation; None: those of the data set.

    Raises:
        ValueError: a number out of range.

    Source: operations_per_second and half_batch: fitted to NVIDIA's figures for ResNet-50 v1.5 with XLA on one A100 in
        https://github.com/NVIDIA/DeepLearningExamples, TensorFlow/Classification/ConvNets/resnet50v1.5: training on 256
        images per device with 909 images/s in TF32 and 2,375 in mixed precision, a step counted as 24.65e9 operations
        per image; inference in TF32 with 310 images/s on 2 images, 1,021 on 8, 1,945 on 32, 2,450 on 128. Links and
        cores: https://developer.nvidia.com/blog/defining-ai-innovation-with-dgx-a100 (NVLink 600 GB/s in both
        directions together, a link of 200 Gbit/s per A100, 128 cores for 8).
    """

    replicas: tuple[int, ...] = (8, 64, 512)
    name: str = "A100"
    operations_per_second: float | None = None
    half_batch: float = 12.0
    per_machine: int = 8
    inside: float = 300e9
    between: float = 25e9
    latency: float = 10e-6
    cores: float = 16.0
    images_per_core: float | None = None
    examples: int | None = None
    test_examples: int | None = None

    def __post_init__(self):
        object.__setattr__(self, "replicas", tuple(self.replicas))
        if not self.replicas or any(type(count) is not int or count < 1 for count in self.replicas):
            raise InputError(f"Plan.replicas is {self.replicas}; it lists whole numbers of at least 1.")
        lowest = {"half_batch": 0.0, "latency": 0.0, "per_machine": 1, "examples": 1, "test_examples": 1}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("name", "replicas") or value is None:
                continue
            least = lowest.get(field.name)
            if not (value > 0 if least is None else value >= least) or not math.isfinite(value):
                condition = "positive" if least is None else f"at least {least:g}"
                raise InputError(f"Plan.{field.name} is {value}; it must be {condition} and finite.")

    def rate(self, examples: float) -> float:
        """Return the operations per second of one accelerator on so many examples."""
        full = self.operations_per_second
        if full is None:
            full = 61.3e12 if keras.config.dtype_policy().name.startswith("mixed") else 23.5e12
        return full * examples / (examples + self.half_batch)
