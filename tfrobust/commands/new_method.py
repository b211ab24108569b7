"""The command `python -m tfrobust new-method NAME`: create a method's code, its gin file and its test.

The files run without changes: the method trains on noisy copies of the images. Replace the views and the terms by your
own. In a checkout of tfrobust they go where its methods are, and no list or registry needs editing. Elsewhere all three
go into the current folder; `--gin_import=NAME` lets a gin file name the method.
"""

import argparse
import pathlib
import re
import sys

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser
from tfrobust.errors import InputError

METHOD = '''"""{title} (authors, year): what it trains for, in one sentence."""

import keras
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.losses import classification
from tfrobust.methods.shared.method import Method
from tfrobust.ops import randomness


@keras.saving.register_keras_serializable(package="tfrobust")
class {cls}(Method):
    """Cross-entropy on the images and on noisy copies of them.

    L = ce + ce_noisy, ce_noisy = CE( h(clip(x + s n, 0, 1)), y ), n ~ N(0, 1).

    Terms: `ce`, `ce_noisy`. Needs: labels.

    Args:
        deviation: standard deviation s of the noise, in pixels of [0, 1], >= 0.

    Example:
        >>> from {module} import {cls}
        >>> from tfrobust import keras as robust
        >>> {cls}(robust.models.DigitsCNN(), robust.models.LinearHead(10)).terms
        ('ce', 'ce_noisy')

    Source:
        Authors and year, link, equation; every deviation from it.
    """

    terms = ("ce", "ce_noisy")

    def __init__(self, encoder, head, *, deviation: float = 0.1, **kwargs):
        super().__init__(encoder, head, **kwargs)
        if deviation < 0:
            raise InputError(f"deviation of {cls} is {{deviation}}; it must not be negative.")
        self.deviation = deviation

    def make_views(self, batch, context):
        """Add a noisy copy of the images."""
        key = randomness.fold(context.key, "noise")
        noise = randomness.draw(randomness.normal(self.deviation), key, tf.unstack(tf.shape(batch.images)))
        noisy = batch.images + tf.ensure_shape(noise, batch.images.shape)
        return {{"images": batch.images, "noisy": tf.clip_by_value(noisy, 0.0, 1.0)}}

    def loss_terms(self, views, batch, context):
        """Return cross-entropy on both views, and the logits of the images."""
        _, logits = self.propagate(views["images"])
        _, noisy = self.propagate(views["noisy"])
        return {{
            "ce": classification.cross_entropy(logits, batch.labels),
            "ce_noisy": classification.cross_entropy(noisy, batch.labels),
        }}, logits
'''

GIN = """# {title} (authors, year): what it trains for, in one sentence.
include 'base/train.gin'
include 'base/digits.gin'

NAME = '{name}'
METHOD = @{cls}
{cls}.deviation = 0.1
"""

TEST = '''"""{title}: the terms against a slow transcription, one step, and the configuration's round trip."""

import keras
import numpy as np
import tensorflow as tf

from {module} import {cls}
from tfrobust.ops import randomness
from tfrobust.structs import Batch, Context


def make_method(**arguments):
    keras.utils.set_random_seed(0)
    encoder = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(5, activation="tanh")])
    method = {cls}(encoder, keras.layers.Dense(3), **arguments)
    method.build((None, 4, 4, 1))
    return method


def make_batch():
    images = np.random.default_rng(0).uniform(size=(6, 4, 4, 1)).astype("float32")
    return Batch(tf.constant(images), tf.constant([0, 1, 2, 0, 1, 2]), tf.range(6, dtype=tf.int64), {{}})


def literal_cross_entropy(logits, labels):
    values = []
    for row, label in zip(logits, labels, strict=True):
        values.append(-np.log(np.exp(row[label]) / sum(np.exp(value) for value in row)))
    return values


def test_terms_are_the_equation():
    method, batch = make_method(deviation=0.3), make_batch()
    context = Context(randomness.make_key(1), tf.constant(0, tf.int64), tf.range(6, dtype=tf.int64))
    views = method.make_views(batch, context)
    terms, logits = method.loss_terms(views, batch, context)
    np.testing.assert_allclose(logits, method(batch.images), rtol=1e-5)
    np.testing.assert_allclose(terms["ce"], literal_cross_entropy(logits.numpy(), batch.labels.numpy()), rtol=1e-5)
    noisy = method(views["noisy"]).numpy()
    np.testing.assert_allclose(terms["ce_noisy"], literal_cross_entropy(noisy, batch.labels.numpy()), rtol=1e-5)
    assert 0.15 < float(tf.math.reduce_std(views["noisy"] - batch.images)) < 0.45


def test_a_step_changes_the_weights_and_logs_the_terms():
    method, batch = make_method(), make_batch()
    method.compile(optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    before = method.head.kernel.numpy()
    logs = method.train_step(batch)
    assert {{"loss", *method.terms}} <= set(logs) and np.isfinite(float(logs["loss"]))
    assert np.abs(method.head.kernel.numpy() - before).max() > 0


def test_configuration_round_trip():
    method = make_method(deviation=0.2)
    assert {cls}.from_config(method.get_config()).deviation == 0.2
'''


def targets(folder: pathlib.Path, name: str) -> dict[pathlib.Path, str]:
    """Return the three files of a method and their text."""
    inside = (folder / "tfrobust" / "methods").is_dir() and (folder / "tests" / "methods").is_dir()
    words = {
        "name": name,
        "cls": "".join(part.capitalize() for part in name.split("_")),
        "title": name.replace("_", " ").capitalize(),
        "module": f"tfrobust.methods.{name}" if inside else name,
    }
    places = (folder / "tfrobust" / "methods", folder / "gin", folder / "tests" / "methods")
    code, gin, test = places if inside else (folder,) * 3
    return {
        code / f"{name}.py": METHOD.format(**words),
        gin / f"{name}.gin": GIN.format(**words),
        test / f"test_{name}.py": TEST.format(**words),
    }


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("new-method", "Create the files of a new method: its code, its gin file and its test.")
    flags.add_argument("name", metavar="NAME", help="of the method, in snake_case such as my_method")
    return flags


def run(flags: argparse.Namespace) -> None:
    """Write the files and print their paths."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", flags.name):
        raise InputError(f"{flags.name!r} is not in snake_case, such as my_method")
    files = targets(pathlib.Path(), flags.name)
    there = [str(path) for path in files if path.exists()]
    if there:
        raise InputError(f"nothing is written, because {', '.join(there)} exists")
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        print(path)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
