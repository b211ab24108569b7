#!/usr/bin/env python3
"""Write a deep ensemble (Lakshminarayanan et al. 2017): a SavedModel that averages the probabilities of exports.

The newest version of each export is a member, and the SavedModel is evaluated as any from elsewhere:

    python tools/benchmarks/ensemble.py --output=runs/ensemble exported/first exported/second exported/third
    python -m tfrobust.evaluate --model=runs/ensemble --data=fashion_mnist --gin_file=gin/eval/natural.gin
"""

import argparse
import pathlib
import sys

import tensorflow as tf
from _recipes import ROOT  # noqa: F401 - makes the package importable

from tfrobust.commands import failures
from tfrobust.errors import InputError
from tfrobust.serving.export import publish, saved_model

FLOOR = 1e-30  # of a probability before its logarithm, which would be -inf for a class that all members exclude


class Ensemble(tf.Module):
    """The mean of the probabilities of exports; its logits are their logarithm.

    Args:
        folders: exports of the same images and classes; the newest version of each is a member.

    Raises:
        InputError: fewer than two exports, no version in a folder, or members of different images or classes.
    """

    def __init__(self, folders: list[pathlib.Path]):
        super().__init__()
        if len(folders) < 2:
            raise InputError(f"An ensemble takes at least two exports, got {len(folders)}.")
        self.models = [tf.saved_model.load(str(newest(folder))) for folder in folders]
        members = [model.signatures[saved_model.PREDICT] for model in self.models]
        interfaces = [(member.structured_input_signature, member.structured_outputs["logits"]) for member in members]
        for folder, interface in zip(folders, interfaces, strict=True):
            if str(interface) != str(interfaces[0]):
                raise InputError(f"{folder} takes other images or has other classes than {folders[0]}.")
        (self.images,) = members[0].structured_input_signature[1].values()
        self.members = members

    def predict(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `probabilities` and `logits`, both float32 [b, k], of images float32 [b, h, w, c] in [0, 1]."""
        outputs = [member(**{self.images.name: images})["probabilities"] for member in self.members]
        probabilities = tf.add_n(outputs) / len(outputs)
        return {"probabilities": probabilities, "logits": tf.math.log(tf.maximum(probabilities, FLOOR))}


def newest(folder: pathlib.Path) -> pathlib.Path:
    """Return the folder of an export's newest version."""
    numbers = publish.versions(folder)
    if not numbers:
        raise InputError(f"{folder} has no version of an export.")
    return folder / str(numbers[-1])


def parser() -> argparse.ArgumentParser:
    """Return the tool's flags."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("exports", nargs="+", type=pathlib.Path, help="folders of exports, such as exported/trades")
    flags.add_argument("--output", type=pathlib.Path, required=True, help="folder of the SavedModel")
    return flags


def run(flags: argparse.Namespace) -> None:
    """Write the SavedModel."""
    ensemble = Ensemble(flags.exports)
    predict = tf.function(ensemble.predict, input_signature=[ensemble.images])
    tf.saved_model.save(ensemble, str(flags.output), signatures={saved_model.PREDICT: predict})
    print(f"{len(flags.exports)} members: {flags.output}")


if __name__ == "__main__":
    sys.exit(failures.main(parser(), run))
