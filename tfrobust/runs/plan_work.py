"""The work of a planned training, whatever the hardware: what one step computes, reads and sends."""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import keras
import tensorflow as tf

from tfrobust.data import pipeline
from tfrobust.errors import InputError
from tfrobust.ops import keras_private
from tfrobust.runs.plan import Plan
from tfrobust.runs.stage import BACKWARD, Stage

# All-reduces of a synchronized batch norm in one training pass: the sums of values, of squares and of counts, forward
# and backward.
_SUMS_PER_NORM = 6
# Seconds, batches and rows that the measurement of the input pipeline takes at most.
_LONGEST, _BATCHES, _ROWS = 2.0, 20, 64


@dataclasses.dataclass(frozen=True)
class Work:
    """Cost of one training step, independent of the hardware.

    Attributes:
        batch_size: examples of the global batch.
        steps: number of steps of the training.
        operations: operations of one step for one example.
        gradient_bytes: bytes of all gradients.
        example_bytes: bytes of one example as the accelerator receives it.
        sums: all-reduces of synchronized batch norm.
        images_per_core: examples per second that one core makes.
    """

    batch_size: int
    steps: int
    operations: float
    gradient_bytes: int
    example_bytes: int
    sums: int
    images_per_core: float


def work_of(stage: Stage, plan: Plan) -> tuple[Work, tuple[str, ...]]:
    """Count the work of a stage's steps, and measure its input pipeline on this machine.

    Returns:
        The work, and the types of operations in the model whose cost TensorFlow does not know.
    """
    spec = stage.dataset.train.fetch(tf.range(1, dtype=tf.int64))
    forward, unknown = forward_operations(stage.method, tuple(spec.shape[1:]), spec.dtype)
    steps = stage.steps_per_epoch if plan.examples is None else plan.examples // stage.batch_size
    if steps == 0:
        raise InputError(f"Plan.examples is {plan.examples}, less than one batch of {stage.batch_size}.")
    adversary = getattr(stage.method, "adversary", None)
    outside = stage.passes_per_step - (adversary.attack.steps if adversary else 0)
    images_per_core = plan.images_per_core
    work = Work(
        batch_size=stage.batch_size,
        steps=stage.epochs * steps,
        operations=stage.passes_per_step * (1 + BACKWARD) * forward,
        gradient_bytes=sum(4 * math.prod(weight.shape) for weight in stage.method.trainable_variables),
        example_bytes=math.prod(spec.shape) * spec.dtype.size,
        # No sum can run inside an attack, which uses the moving statistics.
        sums=_SUMS_PER_NORM * norms(stage.method.encoder) * outside,
        images_per_core=measured_images_per_core(stage) if images_per_core is None else images_per_core,
    )
    return work, unknown


def norms(encoder: keras.Model) -> int:
    """Return the number of batch norms that one pass uses, all of which are synchronized on several replicas."""
    layers = keras_private.all_layers(encoder)
    return sum(isinstance(layer, keras.layers.BatchNormalization) for layer in layers) // getattr(
        encoder, "branches", 1
    )


def forward_operations(model: keras.Model, shape: tuple, dtype="float32") -> tuple[float, tuple[str, ...]]:
    """Count the operations of a forward pass of one example, as TensorFlow's profiler does: two per multiply-add.

    Returns:
        The count, and the types of the products in the graph that the profiler does not count.
    """
    forward = tf.function(lambda examples: model(examples, training=False), autograph=False)
    graph = forward.get_concrete_function(tf.TensorSpec((1, *shape), dtype)).graph
    profiler, log = tf.compat.v1.profiler, tf.get_logger()
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output()
    level = log.level
    log.setLevel("ERROR")  # it warns about its own implementation
    try:
        counted = profiler.profile(graph, options=options.build()).total_float_ops
    finally:
        log.setLevel(level)
    types = {operation.type for operation in graph.get_operations()}
    return float(counted), tuple(sorted(types & {"Einsum", "While", "StatelessWhile", "XlaEinsum"}))


def measured_images_per_core(stage: Stage) -> float:
    """Return the training examples that the input pipeline makes in one CPU second of this process."""
    rows = min(_ROWS, stage.batch_size)
    drawn: dict[str, Any] = {"seed": stage.seed, "augmentation": stage.augmentation, "views": stage.method.host_views}

    def seconds(batches: int) -> float:
        stream = pipeline.training_batches(stage.dataset.train, batch_size=rows, steps=batches, **drawn)
        began = time.process_time()
        for _ in stream:
            pass
        return max(time.process_time() - began, 1e-6)

    batches = max(1, min(_BATCHES, int(_LONGEST / seconds(1))))
    return batches * rows / seconds(batches)
