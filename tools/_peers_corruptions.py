"""The sides of bench_corruptions: all corruptions at all severities over the task's images, timed one by one."""

import functools
import time
import warnings

SEVERITIES = (1, 2, 3, 4, 5)


def own(task):
    """tfrobust, in batches, each corruption and severity a graph, with its constants for images of this size."""
    return _own(task)


def own_large(task):
    """tfrobust with ImageNet-C's constants whatever the size, as the peer has them: the same work."""
    from tfrobust.corruptions import severities

    of_size = severities.constants
    severities.constants = lambda name, severity, height, width: of_size(name, severity, 224, 224)
    return _own(task)


def _own(task):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(task.settings["threads"])
    from tfrobust import corruptions
    from tfrobust.ops import randomness

    keys = randomness.example_keys(randomness.make_key(0, "bench"), tf.range(len(task.images)))
    batches = [(tf.constant(task.images[rows]), keys[rows]) for rows in task.batches()]

    @functools.cache
    def graph(name, severity):
        return tf.function(lambda images, key: corruptions.corrupt(images, name, severity, key), autograph=False)

    def corrupt(name, severity):
        return [graph(name, severity)(images, key).numpy() for images, key in batches]

    return *_sides(task, corrupt), f"tensorflow {tf.__version__}"


def imagecorruptions(task):
    """The package, image by image, as it is used."""
    import importlib.metadata

    import cv2
    import numpy as np
    from imagecorruptions import corrupt as theirs

    cv2.setNumThreads(task.settings["threads"])
    warnings.simplefilter("ignore")
    pixels = np.round(255 * task.images).astype(np.uint8)

    def corrupt(name, severity):
        return [theirs(image, corruption_name=name, severity=severity) for image in pixels]

    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("imagecorruptions", "numpy", "scikit-image")]
    return *_sides(task, corrupt), ", ".join(versions)


def _sides(task, corrupt):
    """`run` and `outcome` of a side: seconds by corruption; one that fails is named with its error and left out."""

    def run():
        seconds, errors = {}, {}
        for name in task.settings["names"]:
            began = time.perf_counter()
            try:
                for severity in SEVERITIES:
                    corrupt(name, severity)
            except Exception as error:  # whatever the peer's libraries have done away with
                errors[name] = f"{type(error).__name__}: {error}"
            else:
                seconds[name] = time.perf_counter() - began
        return {"members": seconds, "errors": errors}

    return run, lambda result: result
