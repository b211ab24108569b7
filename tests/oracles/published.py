"""Tiny sets in the formats of the published benchmarks, written file by file as their authors lay them out."""

import pathlib

import numpy as np
import PIL.Image
import tensorflow as tf
import tensorflow_datasets as tfds

SEVERITIES = 5


def corrupted(images: np.ndarray, names) -> dict:
    """{name: uint8 [5 n, h, w, c]}: each severity a wilder shuffle of grey levels, another for each name."""
    blocks = {}
    for number, name in enumerate(names):
        generator = np.random.default_rng(number)
        noise = [generator.integers(-20 * s, 20 * s + 1, images.shape) for s in range(1, SEVERITIES + 1)]
        blocks[name] = np.concatenate([np.clip(images + change, 0, 255).astype(np.uint8) for change in noise])
    return blocks


def cifar_c(folder: pathlib.Path, blocks: dict, labels: np.ndarray) -> pathlib.Path:
    """`<name>.npy` with the severities below each other, and labels.npy, which says the same five times."""
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(labels, SEVERITIES).astype(np.int64))
    for name, block in blocks.items():
        np.save(folder / f"{name}.npy", block)
    return folder


def tree(folder: pathlib.Path, pictures: dict) -> pathlib.Path:
    """{"n01440764/a.JPEG": uint8 [h, w, c]} as files; what ends in .JPEG or .jpg is encoded as such, else as PNG."""
    for name, picture in pictures.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = "JPEG" if path.suffix.lower() in (".jpeg", ".jpg") else "PNG"
        PIL.Image.fromarray(picture).save(path, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return folder


def tfds_corrupted(data_dir: pathlib.Path, name: str, parts: dict, labels: np.ndarray, split="test") -> pathlib.Path:
    """{"fog_3": uint8 [n, h, w, c]} as configurations of one prepared data set; returns its folder."""
    features = {
        "image": tfds.features.Image(shape=next(iter(parts.values())).shape[1:]),
        "label": tfds.features.ClassLabel(num_classes=10),
    }
    for config, images in parts.items():
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            config=config,
            version="1.0.0",
            features=tfds.features.FeaturesDict(features),
            split_datasets={split: tf.data.Dataset.from_tensor_slices({"image": images, "label": labels})},
            data_dir=data_dir,
        )
    return data_dir / name
