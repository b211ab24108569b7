"""A folder of small whole things to spoil: a SavedModel of ours, a `.keras` file, data that fit both, a report."""

import contextlib
import json
import pathlib
from unittest import mock

import stored


def write(folder) -> None:
    """Write `export`, `model.keras`, `data.npz` and `robustness_report.json` into a folder that is there."""
    import keras
    import numpy as np
    from hostile import reports

    from tfrobust.serving.export import saved_model as export

    folder = pathlib.Path(folder)
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(inputs))
    hidden = keras.layers.Dropout(0.5)(keras.layers.GlobalAveragePooling2D()(hidden))
    encoder, head = keras.Model(inputs, hidden), keras.layers.Dense(3)
    head.build((None, 4))
    parts = {"encoder": encoder, "head": head, "image_shape": (8, 8, 1), "class_names": ("a", "b", "c")}
    export.write_saved_model(folder / "export", **parts)
    keras.Sequential([encoder, head]).save(folder / "model.keras")
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1)).astype(np.uint8)
    np.savez(folder / "data.npz", images=images, labels=np.arange(6) % 3)
    (folder / "robustness_report.json").write_text(json.dumps(reports.report()))


TRAINING = stored.text(globals(), "training")


def write_trained(folder) -> None:
    """Write `weights.safetensors` and `weights.npz` of a network, `run`, a workdir that began with them, and data."""
    import numpy as np
    import safetensors.numpy

    from tfrobust.commands import train
    from tfrobust.models.resnets.wide_resnet import WideResNet
    from tfrobust.models.weights import checkpoints

    folder, draws = pathlib.Path(folder), np.random.default_rng(0)
    images = draws.integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)
    np.savez(folder / "color.npz", images=images, labels=np.arange(6) % 3)
    shapes = checkpoints.shapes(WideResNet(10, 1)) | {"fc.weight": (3, 64), "fc.bias": (3,)}
    tensors = {name: draws.uniform(0.1, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    np.savez(folder / "weights.npz", **tensors)
    safetensors.numpy.save_file(tensors, folder / "weights.safetensors")
    (folder / "training.gin").write_text(TRAINING)
    with unpublished(), contextlib.chdir(folder):
        assert train.main(["--gin_file=training.gin", "--workdir=run", "--export_dir=exported"]) == 0


@contextlib.contextmanager
def unpublished():
    """Let runs end once they have trained."""
    from tfrobust.runs import artifact

    with mock.patch.object(artifact.Artifact, "publish", lambda *_: None):
        yield


def write_prepared(folder) -> None:
    """Write `prepared`, a folder of TFDS of images that fit the model."""
    import numpy as np
    import tensorflow as tf
    import tensorflow_datasets as tfds

    folder = pathlib.Path(folder)
    with np.load(folder / "data.npz") as arrays:
        examples = tf.data.Dataset.from_tensor_slices({"image": arrays["images"], "label": arrays["labels"]})
    label = tfds.features.ClassLabel(names=["a", "b", "c"])
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tiny",
        version="1.0.0",
        features=tfds.features.FeaturesDict({"image": tfds.features.Image(shape=(8, 8, 1)), "label": label}),
        split_datasets={"train": examples, "test": examples},
        data_dir=folder / "prepared",
        disable_shuffling=True,
    )


def write_litert(folder) -> None:
    """Write `model.tflite`, converted from `export`."""
    import tensorflow as tf

    folder = pathlib.Path(folder)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "export"), signature_keys=["serving_default"])
    (folder / "model.tflite").write_bytes(converter.convert())


def tree(folder: pathlib.Path) -> dict:
    """Every name below a folder, with what tells whether it was changed."""
    return {path: path.lstat().st_mtime_ns for path in sorted(folder.rglob("*")) if not path.is_dir()}
