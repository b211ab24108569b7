"""Runs two stages on R logical CPUs and saves what came out.

In the output: first/NN and second/NN (every float of the two methods), log/STAGE/NAME, and fitted/NN: the kernel and
bias of a logistic regression in the place of the probe.
"""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf
from faults import small_stages

from tfrobust.data.sources.digits import Digits
from tfrobust.methods.supervised import Supervised
from tfrobust.models.heads.fitted import LogisticRegression
from tfrobust.training.head_fit import HeadFit


def main(replicas: int, output: str) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * replicas
    )
    with tempfile.TemporaryDirectory() as folder:
        name = "mirrored" if replicas > 1 else "one_device"
        second, first, facts = small_stages.run(pathlib.Path(folder, "run"), "simclr", strategy=name)
    arrays = {}
    for stage, method in {"first": first, "second": second}.items():
        floats = [variable for variable in method.variables if variable.dtype == "float32"]
        arrays |= {f"{stage}/{number:02}": variable.numpy() for number, variable in enumerate(floats)}
    for stage in ("first_history", "history"):
        arrays |= {f"log/{stage}/{name}": np.array(values, np.float32) for name, values in facts[stage].items()}
    with second.distribute_strategy.scope():
        fitted = Supervised(second.encoder, LogisticRegression(10, regularization=1e-2))
        fitted.build((None, 8, 8, 1))
    HeadFit(fitted, Digits(validation_size=1309).load().train, batch_size=50, verbose=0).run()
    arrays |= {f"fitted/{number:02}": variable.numpy() for number, variable in enumerate(fitted.head.variables)}
    arrays["replicas"] = np.int64(second.distribute_strategy.num_replicas_in_sync)
    np.savez(output, **arrays)
