"""The sides of bench_corruptions: all corruptions at all severities over the task's images, timed one by one."""

import functools
import time
import warnings

SEVERITIES = (1, 2, 3, 4, 5)


def own_constants(task):
    """Build the side of tfrobust: batches, one graph per corruption and severity, its constants for this image size."""
    return _tfrobust_side(task)


def own_large(task):
    """Build the side of tfrobust with ImageNet-C's constants at any size, which the peer uses: the same work."""
    from tfrobust.corruptions import registry

    of_size = registry.constants
    registry.constants = lambda name, severity, height, width: of_size(name, severity, 224, 224)
    return _tfrobust_side(task)


def _tfrobust_side(task):
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
    """Build the side of the package imagecorruptions, which works image by image."""
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
    """Return `run` and `outcome` of a side: seconds by corruption, and the errors of those that fail."""

    def run():
        seconds, errors = {}, {}
        for name in task.settings["names"]:
            began = time.perf_counter()
            try:
                for severity in SEVERITIES:
                    corrupt(name, severity)
            except Exception as error:  # the peer may use functions that its libraries have removed
                errors[name] = f"{type(error).__name__}: {error}"
            else:
                seconds[name] = time.perf_counter() - began
        return {"members": seconds, "errors": errors}

    return run, lambda result: result
