"""The pre-activation networks: what PyTorch computes with the same weights, known sizes, blocks, dropout."""

import functools

import numpy as np
import pytest
import recordings
import stored
import tensorflow as tf

from oracles import seeded_networks
from tfrobust.keras.models import PreActResNet18, WideResNet
from tfrobust.models.shared.blocks import ConvolutionUnit, PreActivationBlock
from tfrobust.models.shared.dropout import CountedDropout
from tfrobust.ops import distribution

GOLDEN = recordings.arrays("encoders")
RECORDED = {
    "preact_standard": functools.partial(PreActResNet18, width=8),
    "preact_noisymix": functools.partial(PreActResNet18, width=8, shortcut="activated", final_normalization=False),
    "wide_paper": functools.partial(WideResNet, 10, 2),
    "wide_noisymix": functools.partial(WideResNet, 10, 2, variant="noisymix", dropout=0.1),
}


@pytest.mark.parametrize("name", RECORDED)
def test_it_is_the_network_of_the_torch_code(name):
    """Embedding and the mean of each stage, with weights given in the order in which both define their layers."""
    encoder = RECORDED[name]()
    encoder.build((None, 32, 32, 3))
    weights = [variable for variable in encoder.variables if not variable.path.endswith("clock")]
    for number, variable in enumerate(weights):
        kind = variable.path.rpartition("/")[2]
        variable.assign(seeded_networks.variable(f"{name}/{number}", kind, tuple(variable.shape)))
    images = tf.constant(seeded_networks.uniform("encoders/images", (2, 32, 32, 3)))
    stages = {}
    embedding = encoder(images, at_stage=lambda index, hidden: stages.setdefault(index, hidden))
    expected = {key.partition("/")[2]: value for key, value in GOLDEN.items() if key.startswith(f"{name}/")}
    assert len(expected) == encoder.stage_count + 1
    means = {f"stage{index}": hidden.numpy().mean((1, 2)) for index, hidden in stages.items() if index}
    for key, value in {**means, "embedding": embedding}.items():
        assert np.abs(value - expected[key]).max() < 1e-5 * np.abs(expected[key]).max(), key


@pytest.mark.parametrize("variant", ["paper", "noisymix"])
def test_the_final_statistics_forget_as_the_variant_says(variant):
    encoder = WideResNet(10, 1, variant=variant)
    assert encoder.neck[0].momentum == {"paper": 0.9, "noisymix": 0.1}[variant]
    blocks = [layer for stage in encoder.stage_layers for layer in stage if isinstance(layer, PreActivationBlock)]
    assert all(block.units[0].style.momentum == 0.9 for block in blocks)


# ------------------------------------------------------------------------------------------------------ blocks


@pytest.mark.parametrize("shortcut, project, begins_at", stored.rows(globals(), "where_the_shortcut_begins"))
def test_where_the_shortcut_begins(shortcut, project, begins_at):
    """With the last kernel at 0 the block is its shortcut."""
    block = PreActivationBlock(((2, 3, 1), (2, 3, 1)), project=project, shortcut=shortcut)
    block.build((None, 4, 4, 2))
    last = block.units[-1].chain[0]
    last.kernel.assign(tf.zeros_like(last.kernel))
    images = np.random.default_rng(0).normal(size=(2, 4, 4, 2)).astype(np.float32)
    expected = images if begins_at == "input" else np.maximum(images / np.sqrt(1 + 1e-5), 0)
    if project:
        expected = expected @ block.projection[0].chain[0].kernel.numpy()[0, 0]
    np.testing.assert_allclose(block(images), expected, atol=1e-6)


def test_symmetric_padding_is_zeros_on_every_side():
    style = PreActResNet18(width=2).stage_layers[0][0].style
    unit = ConvolutionUnit(3, stride=2, normalize=False, activate=False, style=style)
    images = np.random.default_rng(1).normal(size=(2, 6, 5, 2)).astype(np.float32)
    unit.build((None, 6, 5, 2))
    padded = np.pad(images, [(0, 0), (1, 1), (1, 1), (0, 0)])
    expected = tf.nn.conv2d(padded, unit.chain[0].kernel, 2, "VALID")
    np.testing.assert_allclose(unit(images), expected, atol=1e-6)
    assert unit.compute_output_shape((None, 6, 5, 2)) == (None, 3, 3, 3) == (None, *expected.shape[1:])
    assert unit.compute_output_shape((None, None, 5, 2)) == (None, None, 3, 3)


# ----------------------------------------------------------------------------------------------------- dropout


def test_dropout_keeps_the_mean_and_drops_the_share():
    layer, ones = CountedDropout(0.3), tf.ones([50, 20, 20])
    first, second = layer(ones, training=True).numpy(), layer(ones, training=True).numpy()
    assert set(np.unique(first)) == {0.0, np.float32(1 / 0.7)}
    assert np.mean(first == 0) == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / ones.shape.num_elements()))
    # Independent passes agree on 0.3^2 + 0.7^2 of the entries.
    assert np.mean(first == second) == pytest.approx(0.58, abs=0.02)
    np.testing.assert_array_equal(layer(ones), ones)


def test_dropout_draws_again_what_its_clock_says():
    layer, ones = CountedDropout(0.5), tf.ones([4, 8])
    layer.build(ones.shape)
    started = layer.clock.numpy()
    run = [layer(ones, training=True).numpy() for _ in range(3)]
    layer.clock.assign(started + 1)
    step = tf.function(lambda images: layer(images, training=True))
    np.testing.assert_array_equal(step(ones), run[1])
    np.testing.assert_array_equal(step(ones), run[2])
    assert layer.clock.numpy() == started + 3


def test_dropout_stands_where_the_variant_has_it():
    """In the paper's block behind the activation: dropped entries are 0 there. In the released one before the norm."""
    for variant, expected in (
        ("paper", ["unit", "dropout", "unit"]),
        ("noisymix", ["unit", "dropout", "norm", "act", "unit"]),
    ):
        block = WideResNet(10, 1, variant=variant, dropout=0.5).stage_layers[0][1]
        names = {"ConvolutionUnit": "unit", "CountedDropout": "dropout", "BranchedBatchNormalization": "norm"}
        assert [names.get(type(layer).__name__, "act") for layer in block.units] == expected
        assert block.units[0].normalize == (variant == "paper")


def test_replicas_drop_what_one_would(monkeypatch):
    """Each of two replicas takes its half of the one draw."""
    layer = CountedDropout(0.5)
    layer.build((None, 6))
    started = layer.clock.numpy()
    full = layer(tf.ones([8, 6]), training=True)
    for replica in (0, 1):
        monkeypatch.setattr(distribution, "replica", lambda replica=replica: (2, replica))
        layer.clock.assign(started)
        np.testing.assert_array_equal(layer(tf.ones([4, 6]), training=True), full[4 * replica : 4 * replica + 4])
