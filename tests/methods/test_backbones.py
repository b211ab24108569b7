"""Foreign backbones under the methods, pairwise: each method with two backbones, each backbone with four methods.

The deepest take two methods, and two of keras.applications are saved: `tools/check_backbones.py` does all of that.

Steps run eagerly, because tracing a deep network takes longer than many steps of it.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from faults import small_run

from conformance import backbones
from conformance import methods as battery
from tfrobust.errors import InputError
from tfrobust.keras.attacks import PGD, ThreatModel, run_attack
from tfrobust.keras.methods import Supervised
from tfrobust.keras.models import Backbone, LinearHead
from tfrobust.keras.optimizers import LARS
from tfrobust.ops import keras_private

FOUR = ("supervised", "trades", "ascl_leaked", "simclr")
DEEP = ("EfficientNetB0", "ConvNeXtTiny", "ResNet50V2", "DenseNet121")
# These compare or mix hidden states at stages, and a whole model is one.
STAGED = ("manifold_mixup", "nfm", "noisymix", "noisymix_paper", "layer_wise")
# The others want branches, bring an encoder of their own, or train on text or clips.
_WITHOUT_SHARED = (
    "nfm_vit",
    "supervised_tikhonov_vit",
    "trades_backbone",
    "dino",
    "swav_queue",
    "fcl_text",
    *battery.CLIP_ROWS,
)
# Bounds pass through layers of known kinds only.
BOUNDED = ("ibp", "crown_ibp", "mtl_ibp", "relu_stability")
METHODS = [
    row for row in battery.ROWS if row not in (*_WITHOUT_SHARED, *STAGED, *BOUNDED, "acl", "acl_to_standard", *FOUR)
]
_TINY = [name for name in backbones.NAMES if name in backbones.PRESETS]
PAIRS = [
    *((name, row) for name in backbones.NAMES for row in (FOUR[:2] if name in DEEP else FOUR)),
    *((_TINY[(number + turn) % len(_TINY)], row) for number, row in enumerate(METHODS) for turn in range(2)),
    *itertools.product(("MobileNetV2", "ResNetBackbone"), STAGED),
]
FIRST = {(name, "trades") for name in _TINY} | {("MobileNetV2", "supervised")}


def tiered(pair):
    return pytest.param(*pair, id="-".join(pair), marks=pytest.mark.first if pair in FIRST else pytest.mark.rest)


def stepped(name: str, row: str, **arguments):
    """A method after one eager step, with what the step left unchanged and its logs."""
    keras.utils.set_random_seed(1)
    method = battery.ROWS[row](backbones.make(name, **arguments), LinearHead(battery.CLASSES), seed=0)
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile(keras.optimizers.SGD(battery.RATE), run_eagerly=True, jit_compile=False)
    before = [variable.numpy() for variable in method.trainable_variables]
    logs = method.train_step(tuple(map(tf.constant, battery.data(6))))
    unchanged = [v.path for v, old in zip(method.trainable_variables, before, strict=True) if (v.numpy() == old).all()]
    return method, unchanged, logs


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # of the token for masked patches
@pytest.mark.parametrize(("name", "row"), [tiered(pair) for pair in PAIRS])
def test_a_method_trains_a_foreign_backbone(name, row):
    stages = {"stage_names": "resolution"} if row in STAGED else {}
    method, unchanged, logs = stepped(name, row, **stages)
    assert all(np.isfinite(float(value)) for value in logs.values()), logs
    kernels = [path for path in unchanged if path.startswith("backbone") and path.endswith("kernel")]
    assert not kernels, "these weights of the backbone did not move"


@pytest.mark.filterwarnings("ignore:Gradients do not exist")  # of the token for masked patches
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n == "ResNetBackbone" else pytest.mark.rest)
        for n in ("MobileNetV2", "ConvNeXtTiny", *_TINY)
    ],
)
def test_a_trained_backbone_is_saved_exported_and_attacked(name, tmp_path):
    method, _, _ = stepped(name, "supervised")
    images, labels = battery.data(3)
    expected = method(images).numpy()
    method.save(tmp_path / "method.keras")
    np.testing.assert_array_equal(keras.saving.load_model(tmp_path / "method.keras")(images), expected)
    method.export(tmp_path / "saved", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(served.serve(images), expected, rtol=1e-3, atol=1e-4)
    result = run_attack(PGD(ThreatModel(epsilon=0.3), steps=3), method, images, labels)
    distance = np.abs(result.adversarial - images).max()
    assert distance <= 0.3 + 1e-6
    losses = [
        keras.losses.sparse_categorical_crossentropy(labels, method(x), from_logits=True)
        for x in (images, result.adversarial)
    ]
    assert float(tf.reduce_sum(losses[1])) >= float(tf.reduce_sum(losses[0]))


@pytest.mark.parametrize("row", STAGED)
def test_methods_that_need_stages_refuse_in_one_line(row):
    with pytest.raises(InputError, match="Backbone has (the stages 0 to )?1; more are set by") as caught:
        battery.ROWS[row](backbones.make("ViTBackbone"), LinearHead(battery.CLASSES))
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize("row", BOUNDED)
def test_methods_of_bounds_refuse_in_one_line(row):
    with pytest.raises(InputError, match="type Backbone .* has no bounds") as caught:
        stepped("ViTBackbone", row)
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("name", _TINY)
def test_mixed_precision(name, policy):
    """Foreign layers compute in 16 bits, and their variables stay float32."""
    encoder = backbones.make(name, dtype=policy)
    assert encoder(battery.data(2)[0]).dtype == policy.removeprefix("mixed_")
    assert {layer.compute_dtype for layer in keras_private.all_layers(encoder.model) if layer.weights} == {policy[6:]}
    assert {variable.dtype for variable in encoder.trainable_variables} == {"float32"}


def test_layer_wise_optimizers_leave_foreign_norms_and_biases_alone():
    encoder = backbones.make("ResNetBackbone")
    encoder.build((None, *battery.IMAGE_SHAPE))
    optimizer = LARS()
    optimizer.build(encoder.trainable_variables)
    adapted = {
        v.path.rpartition("/")[2]
        for v, is_adapted in zip(encoder.trainable_variables, optimizer._adapted, strict=True)
        if is_adapted
    }
    assert adapted == {"kernel"}


def test_gradients_of_foreign_embedding_tables_are_clipped():
    """KerasHub's ViT reads its positions from an embedding layer, whose gradient is sparse in TensorFlow."""
    keras.utils.set_random_seed(1)
    method = Supervised(backbones.make("ViTBackbone"), LinearHead(battery.CLASSES), clip_norm=1e-3)
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile(keras.optimizers.SGD(1.0), run_eagerly=True, jit_compile=False)
    before = [variable.numpy() for variable in method.trainable_variables]
    method.train_step(tuple(map(tf.constant, battery.data(6))))
    moved = [v.numpy() - old for v, old in zip(method.trainable_variables, before, strict=True)]
    assert np.sqrt(sum(np.square(move).sum() for move in moved)) == pytest.approx(1e-3, rel=1e-2)


def dropping() -> Backbone:
    """A functional model with a dict as its input, batch norm, and dropout from Keras's stateful seeds."""
    images = keras.Input((None, None, 1), name="images")
    maps = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3, activation="tanh")(images))
    return Backbone(keras.Model({"images": images}, keras.layers.Dropout(0.5)(maps)), pixel_range=(0, 1))


def test_a_resumed_run_gives_the_same_bits(tmp_path, monkeypatch):
    """Also the masks of foreign dropout continue where they were: their seeds are in the checkpoint."""
    monkeypatch.setattr(battery, "encoder", dropping)

    def ran(folder: str, *ends: int) -> dict:
        for epochs in ends:
            loop = small_run.make_loop(tmp_path / folder, "supervised", epochs=epochs, verbose=0)
            history = loop.run()
        return small_run.outcome(loop, history)

    assert ran("whole", 2) == ran("resumed", 1, 2)
    assert ran("shorter", 1)["model"] != ran("whole", 2)["model"]
