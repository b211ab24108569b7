#!/usr/bin/env python3
"""Take a step of every method with every foreign backbone; save, load, export and attack each of them; print a table.

The methods are those of tests/conformance/methods.py that take images, the backbones those of
tests/conformance/backbones.py, with random weights. Steps are eager, because tracing deep networks takes minutes. A
backbone is divided into stages where its graph allows that. A cell is `ok`, or the number of a refusal listed below the
table. Anything else is a fault: it is printed, and the exit status is 1.

    python tools/check_backbones.py                                                    # about 20 minutes on 2 cores
    python tools/check_backbones.py --backbones=ViTBackbone --methods=trades,acl
"""

import argparse
import functools
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from conformance import backbones, methods  # noqa: E402
from tfrobust import keras as robust  # noqa: E402
from tfrobust.attacks.shared import objectives  # noqa: E402
from tfrobust.errors import InputError  # noqa: E402
from tfrobust.evaluation.engine.loading import from_saved_model  # noqa: E402
from tfrobust.ops import randomness  # noqa: E402
from tfrobust.serving.export.saved_model import write_saved_model  # noqa: E402

COUNT = 4
# These bring an encoder that is no parameter of the row.
FIXED_ENCODER_ROWS = (*methods.TEXT_ROWS, "nfm_vit", "supervised_tikhonov_vit", "trades_backbone")
ROWS = [row for row in methods.ROWS if row not in FIXED_ENCODER_ROWS]


class Encoders:
    """The encoders of one backbone, each built once; every method gets them with their initial weights."""

    def __init__(self, name: str):
        self.name, self._built = name, {}

    def __call__(self, branches: int = 1, **_):
        """Return the encoder with that number of batch-norm branches; it ignores what only a small CNN takes."""
        if branches not in self._built:
            try:
                encoder = backbones.make(self.name, stage_names="resolution", branches=branches)
            except InputError:  # no layer divides it
                encoder = backbones.make(self.name, branches=branches)
            encoder.build((None, *methods.IMAGE_SHAPE))
            self._built[branches] = encoder, [variable.numpy() for variable in encoder.variables]
        encoder, values = self._built[branches]
        for variable, value in zip(encoder.variables, values, strict=True):
            variable.assign(value)
        return encoder


def take_step(encoders: Encoders, row: str) -> None:
    """Take one eager step; raise AssertionError unless its logs are finite and the encoder has changed."""
    first = methods.encoder
    methods.encoder = encoders  # some rows make their encoder by this function
    try:
        method = methods.ROWS[row](encoders(), robust.models.LinearHead(methods.CLASSES), seed=0)
    finally:
        methods.encoder = first
    assert isinstance(method.encoder, robust.models.Backbone), "the row has an encoder of its own"
    method.build((None, *methods.IMAGE_SHAPE))
    method.compile(keras.optimizers.SGD(methods.RATE), run_eagerly=True, jit_compile=False)
    before = [variable.numpy() for variable in method.encoder.trainable_variables]
    logs = method.train_step(tuple(tf.constant(part) for part in methods.data(COUNT)))
    assert all(np.isfinite(float(value)) for value in logs.values()), f"logs {logs}"
    pairs = zip(before, method.encoder.trainable_variables, strict=True)
    assert any(not np.array_equal(old, new) for old, new in pairs), "the encoder has not changed"


def save_and_load(encoders: Encoders) -> None:
    """Compare the logits of a method with those of its `.keras` file."""
    method, images = classifier(encoders), methods.data(COUNT)[0]
    with tempfile.TemporaryDirectory() as folder:
        robust.save_model(method, f"{folder}/method.keras")
        again = robust.load_model(f"{folder}/method.keras")
    np.testing.assert_array_equal(again(images), method(images))


def export(encoders: Encoders) -> None:
    """Compare the logits of a method with those of its SavedModel."""
    method, images = classifier(encoders), methods.data(COUNT)[0]
    with tempfile.TemporaryDirectory() as folder:
        write_saved_model(folder, encoder=method.encoder, head=method.head, image_shape=methods.IMAGE_SHAPE)
        logits = from_saved_model(folder).logits(tf.constant(images))
    np.testing.assert_allclose(logits, method(images), rtol=1e-3, atol=1e-3 * float(tf.reduce_max(abs(logits))))


def attack(encoders: Encoders) -> None:
    """Check that PGD follows an input gradient to a larger loss, in training and in an evaluation."""
    method, (images, labels) = classifier(encoders), methods.data(COUNT)
    pgd = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=0.1), steps=2, random_start="none")
    loss = objectives.cross_entropy(method, tf.constant(labels))
    moved = pgd.perturb(loss, tf.constant(images), randomness.make_key(0, "check"))
    assert tf.reduce_sum(loss(moved)) > tf.reduce_sum(loss(tf.constant(images))), "PGD has not increased the loss"
    tf.config.run_functions_eagerly(True)
    try:
        result = robust.attacks.run_attack(pgd, method, images, labels, batch_size=COUNT)
    finally:
        tf.config.run_functions_eagerly(False)
    for points in (moved, result.adversarial):
        assert np.abs(points - images).max() <= 0.1 + 1e-6, "PGD has left its threat set"


def classifier(encoders: Encoders):
    """Return plain training with the backbone, built."""
    method = robust.methods.Supervised(encoders(), robust.models.LinearHead(methods.CLASSES))
    method.build((None, *methods.IMAGE_SHAPE))
    return method


PARTS = {"save, load": save_and_load, "export": export, "white-box PGD": attack}


def outcome(check) -> str:
    """Return "ok", "refused: why" or "fault: what"."""
    try:
        check()
    except InputError as error:
        return f"refused: {error}"
    except Exception as error:  # noqa: BLE001 - every other error is what this tool looks for
        return f"fault: {type(error).__name__}: {' '.join(str(error).split())}"
    return "ok"


def table(cells: dict[tuple[str, str], str], names: list[str]) -> str:
    """Return an aligned table of rows and backbones, and the list of refusals and faults by number."""
    reasons = list(dict.fromkeys(cell for cell in cells.values() if cell != "ok"))
    shown = {
        key: cell if cell == "ok" else f"{cell.split(':')[0]} {reasons.index(cell) + 1}" for key, cell in cells.items()
    }
    rows = list(dict.fromkeys(row for row, _ in cells))
    width = max(map(len, rows))
    lines = [" ".join([" " * width, *(f"{name:>16}" for name in names)])]
    lines += [" ".join([f"{row:{width}}", *(f"{shown.get((row, name), ''):>16}" for name in names)]) for row in rows]
    return "\n".join([*lines, *(f"{number}. {reason}" for number, reason in enumerate(reasons, start=1))])


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--backbones", default=",".join(backbones.NAMES), help="comma-separated names")
    flags.add_argument("--methods", default=",".join(ROWS), help="comma-separated rows of tests/conformance/methods.py")
    return flags


def main() -> int:
    """Run all combinations; return 1 if any has a fault."""
    flags = parser().parse_args()
    names, rows, cells = flags.backbones.split(","), flags.methods.split(","), {}
    for name in names:
        encoders = Encoders(name)
        checks = {row: functools.partial(take_step, encoders, row) for row in rows}
        checks |= {part: functools.partial(check, encoders) for part, check in PARTS.items()}
        for row, check in checks.items():
            started = time.monotonic()
            cells[row, name] = outcome(check)
            print(
                f"{name}, {row}: {cells[row, name]} ({time.monotonic() - started:.1f} s)", file=sys.stderr, flush=True
            )
    print(table(cells, names))
    return int(any(cell.startswith("fault") for cell in cells.values()))


if __name__ == "__main__":
    sys.exit(main())
