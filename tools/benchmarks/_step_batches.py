"""The batches that tools/benchmarks/bench_step.py trains on, and the time spent waiting for them."""

import time


class Waited:
    """A dataset that records the seconds spent waiting for each of its batches."""

    def __init__(self, dataset):
        self.dataset, self.element_spec, self.seconds = dataset, dataset.element_spec, []

    def __iter__(self):
        iterator = iter(self.dataset)
        while True:
            began = time.perf_counter()
            batch = next(iterator)
            self.seconds.append(time.perf_counter() - began)
            yield batch


def made_batches(method, image_shape: tuple[int, int, int], size: int, classes: int):
    """Return batches as in training: bytes in memory, flipped and cropped, with the method's own views."""
    import numpy as np

    from tfrobust.augment.standard import Compose, PadCrop, RandomFlip
    from tfrobust.data import pipeline
    from tfrobust.data.spec import ArrayExamples

    images = np.random.default_rng(0).integers(0, 256, (8 * size, *image_shape), np.uint8)
    return pipeline.training_batches(
        ArrayExamples(images, np.arange(8 * size) % classes),
        batch_size=size,
        seed=0,
        augmentation=Compose(augmentations=(RandomFlip(), PadCrop())),
        views=method.host_views,
    )
