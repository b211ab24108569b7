"""Corrupted test images prepared by TensorFlow Datasets: `cifar10_corrupted`, `imagenet2012_corrupted`."""

import dataclasses
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tfrobust.common.arrays import check_labels
from tfrobust.data.checks import shorten
from tfrobust.data.published.published_set import CorruptedImages, Opened, Target
from tfrobust.data.sources.tfds import TensorFlowDatasets
from tfrobust.data.spec import decode_image
from tfrobust.errors import InputError

# Names of two corruptions in cifar10_corrupted.
_OTHER_NAMES = {"glass_blur": "frosted_glass_blur", "elastic_transform": "elastic"}
_COUNTS = {"cifar10_corrupted": 10_000, "imagenet2012_corrupted": 50_000}


@keras.saving.register_keras_serializable(package="tfrobust")
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorruptedTensorFlowDatasets(CorruptedImages):
    """Prepared TFDS set with one configuration per corruption and severity, such as `fog_3`; nothing is downloaded.

    Args:
        folder: folder of the set, which contains those of the configurations: <data_dir>/cifar10_corrupted.
        as_published: as in `PublishedSet`.

    Source:
        https://www.tensorflow.org/datasets/catalog/cifar10_corrupted, /imagenet2012_corrupted. TFDS stores the images
        in an order of its own: unless the clean images have the same order, differences cannot be computed image by
        image.
    """

    title = "TFDS"
    files_to_watch = "*/*/*"

    def open(self, names: Sequence[str], severities: Sequence[int], target: Target) -> Opened:
        """Check the configurations, and read their labels."""
        folders = {(name, severity): self._folder(name, severity) for name in names for severity in severities}
        self.require(
            list(folders.values()), f"Prepare it elsewhere: tfds build {self.root.name}; copy the folder here."
        )
        opened = {part: self._opened(folder, target) for part, folder in folders.items()}
        first = opened[names[0], severities[0]]
        builder, _, _, label_key = first
        where = shorten(builder.data_path)
        stream = _stream(first).map(lambda example: example[label_key]).batch(1024)
        labels = np.concatenate(list(_read_stream(stream, where)))
        labels = check_labels(labels, len(labels), target.class_count, where)
        for folder, configuration in zip(folders.values(), opened.values(), strict=True):
            if _size(configuration) != len(labels):
                raise InputError(
                    f"{shorten(self.root, 70)}: {folder} has {_size(configuration)} images, {where} {len(labels)}."
                )
        self.check_count("images at each severity", len(labels), _COUNTS.get(builder.name, len(labels)))

        def read(part: tuple, positions: np.ndarray, size: int) -> Iterator[np.ndarray]:
            return _batches(opened[part], labels, positions, size, target.image_shape)

        return Opened(labels, read, self.notes(f"TFDS {builder.name} {builder.version}"))

    def _folder(self, name: str, severity: int) -> str:
        other = f"{_OTHER_NAMES.get(name, name)}_{severity}"
        return other if self.root.name == "cifar10_corrupted" or (self.root / other).exists() else f"{name}_{severity}"

    def _opened(self, folder: str, target: Target) -> tuple:
        """Return the builder, its only or its test split, and the names of image and label."""
        source = TensorFlowDatasets(dataset=str(self.root / folder), image_shape=tuple(target.image_shape))
        builder, image_key, label_key = source.opened()
        splits = [split for split in ("test", "validation") if split in builder.info.splits]
        if not splits:
            split_names = ", ".join(builder.info.splits)
            raise InputError(
                f"{shorten(builder.data_path)} has neither a test nor a validation split, only {split_names}."
            )
        return builder, splits[0], image_key, label_key


def _size(opened: tuple) -> int:
    builder, split, *_ = opened
    return builder.info.splits[split].num_examples


def _stream(opened: tuple) -> tf.data.Dataset:
    """Stream examples with undecoded images in the order of the shards, which is the same in each configuration."""
    import tensorflow_datasets as tfds

    builder, split, image_key, _ = opened
    return builder.as_dataset(
        split=split,
        shuffle_files=False,
        decoders={image_key: tfds.decode.SkipDecoding()},
        read_config=tfds.ReadConfig(interleave_cycle_length=1),
    )


def _batches(
    opened: tuple, labels: np.ndarray, positions: np.ndarray, size: int, image_shape: tuple[int, int, int]
) -> Iterator[np.ndarray]:
    builder, _, image_key, label_key = opened
    where = shorten(builder.data_path)
    selected = np.zeros(len(labels), bool)
    selected[positions] = True
    stream = _stream(opened).enumerate().take(len(labels)).filter(lambda position, _: tf.gather(selected, position))
    stream = stream.map(
        lambda _, example: (decode_image(example[image_key], image_shape, upright=False), example[label_key]),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    done = 0
    for images, batch_labels in _read_stream(stream.batch(size), where):
        if not np.array_equal(batch_labels, labels[positions[done : done + len(batch_labels)]]):
            raise InputError(f"{where} has other images, or another order, than the first configuration that was read.")
        done += len(batch_labels)
        yield images
    if done < len(positions):
        raise InputError(f"{where} ends after {done} of {len(positions)} images.")


def _read_stream(stream: tf.data.Dataset, where: str) -> Iterator:
    try:
        yield from stream.as_numpy_iterator()
    except tf.errors.OpError as error:
        raise InputError(f"{where}: damaged or cut short.") from error
