"""`tf.distribute` strategies by name, XLA compilation, determinism and precision."""

from __future__ import annotations

import keras
import tensorflow as tf

from tfrobust.common.settings import require_choice
from tfrobust.errors import InputError
from tfrobust.training import cluster

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


def make_strategy(name: str) -> tf.distribute.Strategy:
    """Create the strategy of a run. Make one per process: a second MirroredStrategy breaks the first one's collectives.

    Args:
        name: "auto" mirrors over the accelerators if there are several and takes the only device otherwise;
            "one_device", "mirrored" (all local accelerators, or logical CPUs), "multi_worker" (see
            `training.cluster_config`), "tpu".

    Raises:
        ValueError: the name is unknown, or "tpu" finds no TPU.
    """
    require_choice(name, "STRATEGY", STRATEGIES)
    if name == "auto":
        name = "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "one_device"
    if name == "one_device":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        return tf.distribute.MirroredStrategy([device.name for device in tf.config.list_logical_devices(kind)])
    if name == "multi_worker":
        return cluster.join()
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0][:150]
        raise InputError(f"STRATEGY is 'tpu', but no TPU can be reached: {reason} Try STRATEGY='auto'.") from error
    return tf.distribute.TPUStrategy(resolver)


def use_xla(choice: str | bool, strategy: tf.distribute.Strategy) -> bool:
    """Return True if training steps are to be compiled by XLA.

    Args:
        choice: True, False, or "auto": no on CPU, where a compiled attack loop is ten times slower, no under a mirrored
            strategy, yes on one accelerator. A TPU always compiles.
        strategy: the run's strategy.
    """
    if choice not in ("auto", True, False):
        raise InputError(f"jit_compile is {choice!r}; it is True, False or 'auto'.")
    if choice != "auto":
        return bool(choice)
    return bool(tf.config.list_physical_devices("GPU")) and strategy.num_replicas_in_sync == 1


def set_determinism(choice: str | bool) -> bool:
    """Enable deterministic operations if chosen, and return True if they are.

    Args:
        choice: True, False, or "auto": yes on CPU, where bit-identical resumption is guaranteed, no elsewhere.
    """
    if choice not in ("auto", True, False):
        raise InputError(f"deterministic is {choice!r}; it is True, False or 'auto'.")
    enabled = not tf.config.list_physical_devices("GPU") if choice == "auto" else bool(choice)
    if enabled:
        tf.config.experimental.enable_op_determinism()
    return enabled


PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def set_precision(name: str) -> None:
    """Set Keras's dtype policy for layers built from now on."""
    require_choice(name, "precision", PRECISIONS)
    keras.config.set_dtype_policy(name)
