"""MoCo v3, DINO and SwAV beside three steps of PyTorch (tests/golden/momentum_methods.md)."""

import keras
import numpy as np
import pytest
import recordings
import tensorflow as tf
from faults import small_run

from tfrobust.keras.augment import PadCrop, RandomShift
from tfrobust.keras.methods import BYOL, DINO, MoCoV3, SwAV
from tfrobust.keras.models import Backbone, LinearHead, ProjectionHead, Prototypes
from tfrobust.keras.optimizers import LARS, ScheduledAdamW
from tfrobust.methods.shared.momentum import weight_pairs
from tfrobust.structs import Batch

GOLDEN = recordings.arrays("momentum_methods")
STEPS, RATE = 3, 0.05
ADAM = {"learning_rate": RATE, "epsilon": 1e-2}
CROPS = {"views": RandomShift(), "local_views": RandomShift(), "local_count": 2}  # never called: the views are given


def encoder() -> keras.Model:
    inputs = keras.Input((None, None, 3))
    return keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(keras.layers.Dense(5, "tanh")(inputs)))


def head(**style) -> ProjectionHead:
    return ProjectionHead((6,), dim=4, **style)


def cosine(first: float):
    return keras.optimizers.schedules.CosineDecay(first, STEPS)


def moco_v3():
    bare = {"use_bias": False, "output_bias": False}
    parts = {"projection": head(normalization="standardized", **bare), "views": RandomShift()}
    parts |= {"prediction": head(normalization="hidden", **bare), "temperature": 0.2, "target_rate": cosine(0.4)}
    return MoCoV3(encoder(), LinearHead(3), probe=False, **parts), ScheduledAdamW(weight_decay=0.1, exclude=(), **ADAM)


def dino():
    warmer = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.4, 0.7])
    parts = {"projection": head(activation="gelu"), "prototypes": Prototypes(7, lengths="weight_norm")}
    parts |= {"temperature": 1.0, "teacher_temperature": warmer, "target_rate": cosine(0.4), "frozen_steps": 1}
    method = DINO(encoder(), LinearHead(3), probe=False, clip_norm=0.05, clip_each=True, **parts, **CROPS)
    decay = keras.optimizers.schedules.CosineDecay(0.04, STEPS, alpha=10.0)
    return method, ScheduledAdamW(weight_decay=decay, **ADAM)


def swav():
    parts = {"projection": head(normalization="hidden", use_bias=False), "prototypes": Prototypes(7)}
    method = SwAV(encoder(), LinearHead(3), probe=False, queue_length=12, frozen_steps=1, **parts, **CROPS)
    larc = {"momentum": 0.9, "weight_decay": 1e-2, "trust": 0.5, "exclude": ()}
    return method, LARS(RATE, velocity="gradients", denominator="sum", **larc)


METHODS = {"moco_v3": moco_v3, "dino": dino, "swav": swav}


def weights_of(name: str, method) -> dict:
    """Each variable by its name in the file, in the order of PyTorch."""
    weights = {}
    parts = ("encoder", "projection", "prediction", "prototypes", "target_encoder", "target_projection")
    for part in (*parts, "target_prototypes"):
        layer = getattr(method, part, None)
        layer_weights = [weight for weight in layer.weights if "moving" not in weight.path] if layer is not None else []
        # PyTorch's weight normalization has the lengths, which stay 1, before the directions.
        first = 1 if name == "dino" and part.endswith("prototypes") else 0
        weights |= {f"{part}/{number + first}": weight for number, weight in enumerate(layer_weights)}
    return weights


def directions(name: str, values: np.ndarray) -> np.ndarray:
    """SwAV's code normalizes prototypes at the beginning of the next step, not at the end of this one."""
    return values / np.linalg.norm(values, axis=0) if name == "swav" else values


@pytest.mark.first
@pytest.mark.parametrize("name", METHODS)
def test_three_steps_are_those_of_pytorch(name):
    method, optimizer = METHODS[name]()
    method.build((None, 4, 4, 3))
    method.compile(optimizer, jit_compile=False)
    weights = weights_of(name, method)
    lengths = {f"{name}/0/{part}/0" for part in ("prototypes", "target_prototypes") if name == "dino"}
    ours = {f"{name}/0/{key}" for key in weights} | lengths
    assert ours == {key for key in GOLDEN if key.startswith(f"{name}/0/") and key.count("/") == 3}
    for key, weight in weights.items():
        weight.assign(GOLDEN[f"{name}/0/{key}"])
    if name == "swav":
        method.prototypes.project()
    step = tf.function(method.train_step, autograph=False)
    for number in range(STEPS):
        places = dict(zip(("view_1", "view_2", "local_1", "local_2"), range(4), strict=True))
        views = {key: tf.constant(GOLDEN[f"views/{number}/{view}"], tf.float32) for key, view in places.items()}
        method.reset_metrics()
        logs = step(Batch(views["view_1"], None, tf.range(6, dtype=tf.int64), views))
        assert float(logs["loss"]) == pytest.approx(float(GOLDEN[f"{name}/{number}/loss"]), rel=2e-5)
        for key, weight in weights.items():
            expected, moved = GOLDEN[f"{name}/{number + 1}/{key}"], weight.numpy()
            if key.endswith("prototypes/0"):
                expected = directions(name, expected)
            if name == "moco_v3" and key.startswith("target"):
                continue  # theirs moves in the next step, before its keys: compared there
            np.testing.assert_allclose(moved, expected, atol=1e-3, err_msg=f"{key} after step {number}")
        for key, variable in (("center", "center"), ("queue", "queue")):
            if f"{name}/{number}/{key}" in GOLDEN:
                state = getattr(method, variable).numpy()
                np.testing.assert_allclose(state, GOLDEN[f"{name}/{number}/{key}"], atol=1e-4)


@pytest.mark.first
def test_the_keys_of_moco_come_from_the_update_before_them():
    """PyTorch's momentum network after its step k is ours before the keys of step k."""
    method, optimizer = moco_v3()
    method.build((None, 4, 4, 3))
    method.compile(optimizer, jit_compile=False)
    weights = weights_of("moco_v3", method)
    for key, weight in weights.items():
        weight.assign(GOLDEN[f"moco_v3/0/{key}"])
    targets = {key: weight for key, weight in weights.items() if key.startswith("target")}
    for number in range(STEPS):
        for key, weight in targets.items():
            np.testing.assert_allclose(weight.numpy(), GOLDEN[f"moco_v3/{number + 1}/{key}"], atol=1e-4, err_msg=key)
        views = {f"view_{view + 1}": tf.constant(GOLDEN[f"views/{number}/{view}"], tf.float32) for view in range(2)}
        method.train_step(Batch(views["view_1"], None, tf.range(6, dtype=tf.int64), views))
    assert np.any(GOLDEN["moco_v3/3/target_encoder/0"] != GOLDEN["moco_v3/2/target_encoder/0"])


@pytest.mark.parametrize(("row", "equal"), [("moco_v3", True), ("dino", True), ("byol", False)])
def test_a_run_starts_from_the_weights_that_the_encoder_was_given(row, equal, tmp_path):
    """A pretrained encoder gets its weights after the method was built; a resumed run keeps the momentum network."""
    loop = small_run.make_loop(tmp_path, row, epochs=1, verbose=0)
    method = loop.method
    for weight in method.encoder.trainable_weights:
        weight.assign(weight + 1.0)
    seen = []

    def distance():
        pairs = weight_pairs(method.encoder, method.target_encoder)
        return max(float(np.abs(weight.numpy() - target.numpy()).max()) for weight, target in pairs)

    class Seen(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            seen.append(distance())

    loop.callbacks = (Seen(),)
    loop.run()
    assert (seen[0] == 0.0) == equal
    after = distance()
    again = small_run.make_loop(tmp_path, row, epochs=1, verbose=0)
    method = again.method
    again.callbacks = (Seen(),)
    again.run()
    assert distance() == after > 0.0


@pytest.mark.parametrize("how", [{"stage_names": ("a",), "trainable": "last_stage"}, {"lora_rank": 2}])
def test_the_frozen_part_of_a_backbone_is_also_that_of_the_momentum_network(how):
    """No update follows it: at a rate of 1 both networks are equal after each."""
    image = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(4, 3, name="a")(image)
    network = keras.Model(image, keras.layers.Conv2D(4, 3, name="b")(hidden))
    method = BYOL(
        Backbone(network, pixel_range=(0, 1), **how),
        LinearHead(3),
        projection=ProjectionHead((8,), dim=4),
        target_rate=1.0,
        views=PadCrop(padding=0),
    )
    method.compile(keras.optimizers.SGD(0.1))
    images, labels = np.random.default_rng(0).random((8, 8, 8, 1), np.float32), np.arange(8) % 3
    method.fit(images, labels, batch_size=8, epochs=2, verbose=0)
    for online, target in weight_pairs(method.encoder, method.target_encoder):
        np.testing.assert_array_equal(target.numpy(), online.numpy())
