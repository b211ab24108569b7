"""Fine-tuning: a probe whose head the second stage takes over, frozen parts, adapters, and a rate of the encoder."""

import functools
from unittest import mock

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf
from faults.whole_run import train_in, unverified

from conformance.recipes import arguments
from tfrobust import errors, saving
from tfrobust.data.sources.digits import Digits
from tfrobust.keras.attacks import FGSM, ThreatModel
from tfrobust.keras.methods import AdversarialTraining, Supervised
from tfrobust.keras.models import Backbone, LinearHead
from tfrobust.models.shared import trained_parts
from tfrobust.runs import initial_encoder
from tfrobust.runs.first_stage import Pretraining
from tfrobust.runs.trained_line import trained_line

DIGITS = Digits(validation_size=100)
IMAGES = np.random.default_rng(0).random((6, 8, 8, 1)).astype(np.float32)
BATCH = tf.constant(IMAGES), tf.constant([0, 1, 2, 0, 1, 2])


def network() -> keras.Model:
    """Two stages, each with batch norm, and a dense layer in the second."""
    layers = keras.layers
    images = keras.Input((8, 8, 1))
    first = layers.Conv2D(4, 3, strides=2, padding="same", name="stem")(images)
    cut = layers.Activation("relu", name="cut")(layers.BatchNormalization(name="first")(first))
    second = layers.BatchNormalization(name="second")(layers.Conv2D(5, 3, strides=2, padding="same")(cut))
    return keras.Model(images, layers.Dense(6, name="dense")(layers.Dropout(0.9)(layers.Flatten()(second))))


def adapted() -> keras.Model:
    """The network with an adapter of rank 4 in one layer, as a user gives it."""
    model = network()
    model.get_layer("dense").enable_lora(4)
    return model


def backbone(model=None, **options) -> Backbone:
    keras.utils.set_random_seed(3)
    return Backbone(model or network(), pixel_range=(0, 1), stage_names=("cut",), **options)


def method(*, optimizer=None, encoder=None, **options):
    keras.utils.set_random_seed(4)
    built = Supervised(encoder or backbone(), LinearHead(3), **options)
    built.build((None, 8, 8, 1))
    built.compile(optimizer or keras.optimizers.SGD(0.5), jit_compile=False)
    return built


def changed(trained) -> set[str]:
    """Return the names of the encoder's variables that a step changes, without seeds."""
    variables = [v for v in trained.encoder.variables if "seed" not in v.path]
    before = [v.numpy() for v in variables]
    trained.train_step(BATCH)
    return {
        "/".join(v.path.split("/")[-2:]) for v, old in zip(variables, before, strict=True) if np.any(v.numpy() != old)
    }


FIRST = {"stem/kernel", "stem/bias", "first/gamma", "first/beta", "first/moving_mean", "first/moving_variance"}


@pytest.mark.parametrize("options, line", stored.rows(globals(), "a_part_alone_is_trained"), ids=str)
def test_a_part_alone_is_trained(options, line):
    trained = method(encoder=backbone(**options))
    moved = changed(trained)
    if not options:
        assert moved > FIRST
    elif "lora_rank" in options:  # the second factor begins at 0, so that the first has no gradient yet
        assert moved and all(name.endswith("lora_kernel_b") for name in moved)
    else:
        assert not moved & FIRST and bool(moved) == (options["trainable"] == "last_stage")
        assert ("second/moving_mean" in moved) == (options["trainable"] == "last_stage")
    if line:
        assert trained_line(trained).split(":")[0] == line.split(":")[0]
    assert trained_line(trained, frozen=True).startswith("LinearHead: 21 of")
    twin = Backbone.from_config(trained.encoder.get_config())
    assert twin.trained == trained.encoder.trained and twin.lora_rank == trained.encoder.lora_rank
    assert len(twin.trainable_variables) == len(trained.encoder.trainable_variables)
    for value in (False, True):
        trained.encoder.trainable = value
    assert len(twin.trainable_variables) == len(trained.encoder.trainable_variables)


def test_frozen_stages_run_in_inference_mode():
    encoder = backbone(lora_rank=2)  # with dropout of 90 %
    np.testing.assert_array_equal(encoder(IMAGES, training=True), encoder(IMAGES, training=False))
    half = backbone(trainable="last_stage")
    seen = []
    for training in (True, False):
        half(IMAGES, training=training, at_stage=lambda index, value: seen.append(value.numpy()) or value)
    np.testing.assert_array_equal(seen[1], seen[4])
    assert np.abs(seen[2] - seen[5]).max() > 0.01


def test_adapters_are_a_product_that_is_merged():
    encoder = backbone(lora_rank=2)
    dense = encoder.model.get_layer("dense")
    kernel, pair = dense._kernel.numpy(), (dense.lora_kernel_a, dense.lora_kernel_b)
    factors = [np.random.default_rng(1).normal(size=v.shape) for v in trained_parts.adapters(encoder)]
    for variable, value in zip(trained_parts.adapters(encoder), factors, strict=True):
        variable.assign(value)
    expected, count, product = encoder(IMAGES).numpy(), len(encoder.variables), pair[0].numpy() @ pair[1].numpy()
    encoder.merge_adapters()
    np.testing.assert_allclose(encoder(IMAGES), expected, atol=1e-4)
    np.testing.assert_allclose(dense.kernel, kernel + product, atol=1e-5)
    assert len(encoder.variables) == count - len(factors) == len(backbone().variables)
    assert len(encoder.trainable_variables) == 10 and encoder.lora_rank is None


def test_adapters_of_a_file_are_trained_further_and_start_another_model(tmp_path):
    """Keras saves the product within the weights, and would load two factors of 0, which have no gradient."""
    trained = method(encoder=backbone(lora_rank=2))
    trained.train_step(BATCH)
    saving.save(trained, tmp_path / "method.keras")
    again, encoder = saving.load(tmp_path / "method.keras"), backbone()
    np.testing.assert_allclose(again(IMAGES), trained(IMAGES), atol=1e-5)
    assert {name.split("/")[-1] for name in changed(again)} == {"lora_kernel_b"}
    encoder.build((None, 8, 8, 1))
    initial_encoder.Pretrained(path=str(tmp_path / "method.keras")).give(encoder, (8, 8, 1))
    np.testing.assert_allclose(encoder(IMAGES), trained.encoder(IMAGES), atol=1e-5)


def test_a_model_keeps_the_adapters_that_it_has():
    encoder = backbone(adapted(), lora_rank=4)
    assert [v.path.split("/")[-1] for v in encoder.trainable_variables] == ["lora_kernel_a", "lora_kernel_b"]


@pytest.mark.parametrize("options, count", [({}, 10), ({"trainable": "last_stage"}, 6), ({"trainable": "head"}, 0),
                                            ({"lora_rank": 2}, 6), ({"trainable": False}, 10)])  # fmt: skip
def test_a_frozen_backbone_is_frozen_in_its_file_and_trains_its_part_afterwards(options, count, tmp_path):
    encoder = backbone(**options)
    encoder.build((None, 8, 8, 1))
    encoder.trainable = False
    saving.save(encoder, tmp_path / "frozen.keras")
    for frozen in (encoder, saving.load(tmp_path / "frozen.keras")):
        assert not frozen.trainable and not frozen.trainable_variables
        frozen.trainable = True
        assert len(frozen.trainable_variables) == count


def test_the_name_of_a_part_replaces_the_argument():
    encoder = backbone()
    for name, count in (("last_stage", 6), ("all", 10), ("head", 0), ("last_stage", 6)):
        encoder.trainable = name
        assert len(encoder.trainable_variables) == count and encoder.trainable == (name != "head")
    with pytest.raises(errors.InputError, match="Backbone.trainable is 'body'; it is one of"):
        encoder.trainable = "body"


@pytest.mark.parametrize("optimizer", [keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW])
def test_the_rate_of_the_encoder_scales_its_steps(optimizer):
    steps = {}
    for factor in (1.0, 0.25):
        trained = method(optimizer=optimizer(0.1), encoder_rate=factor)
        before = [v.numpy() for v in trained.trainable_variables]
        tf.function(trained.train_step, autograph=False)(BATCH)
        steps[factor] = [v.numpy() - old for v, old in zip(trained.trainable_variables, before, strict=True)]
    count = len(trained.encoder.trainable_variables)
    for position, (whole, part) in enumerate(zip(steps[1.0], steps[0.25], strict=True)):
        np.testing.assert_allclose(part, whole * (0.25 if position < count else 1.0), rtol=1e-3, atol=1e-6)
    assert "Backbone at 0.25 of the learning rate" in trained_line(trained)


def run(folder, **changes):
    """A run in two stages that measures nothing: an adversarial probe, then training of the adapters."""
    keras.utils.set_random_seed(0)
    (encoder := backbone()).build((None, 8, 8, 1))
    saving.save(encoder, folder / "robust.keras")
    attacked = functools.partial(AdversarialTraining, attack=FGSM(ThreatModel(epsilon=0.1)))
    settings = {"method": attacked, "optimizer": keras.optimizers.Adam, "epochs": 1, "batch_size": 128}
    options = {
        "name": "tuned",
        "encoder": functools.partial(backbone, lora_rank=2),
        "data": DIGITS,
        "pretrained": initial_encoder.Pretrained(path=str(folder / "robust.keras")),
        "pretraining": Pretraining(**settings, probe=True, frozen=False),
    }
    return encoder, train_in(folder, **settings | options | changes)


@pytest.mark.first
def test_a_probe_hands_its_head_to_the_second_stage_and_adapters_are_published_merged(tmp_path, capsys):
    handed = {}
    plain = Pretraining.run

    def watched(self, stage, *arguments, **keywords):
        handed["before"] = stage.method.head.get_weights()
        results = plain(self, stage, *arguments, **keywords)
        handed["after"] = stage.method.head.get_weights()
        handed["encoder"] = [v.numpy() for v in trained_parts.without_adapters(stage.method.encoder)]
        return results

    with mock.patch.object(Pretraining, "run", watched), unverified():
        encoder, report = run(tmp_path)
    for old, now in zip(encoder.variables, handed["encoder"], strict=True):
        assert "seed" in old.path or np.array_equal(old, now), old.path
    assert np.abs(handed["after"][0] - handed["before"][0]).max() > 0.001
    served = tf.saved_model.load(str(tmp_path / "exported" / "tuned" / "1")).variables
    assert len(served) == len(encoder.variables) + 2
    by_shape = {tuple(value.shape): value for value in served}
    head = by_shape[6, 10].numpy()
    assert 0 < np.abs(head - handed["after"][0]).max() < np.abs(head - handed["before"][0]).max()
    assert report.training["pretraining"]["probe"] and report.training["pretrained"]["source"] == "robust.keras"
    printed = capsys.readouterr().out
    advice = "advice      The radius is whole from the first of 1 epochs, and the backbone was perhaps trained without"
    assert advice in printed and report.training["fine_tuning"]["origin"] == "unknown"
    assert "trains      LinearHead: 70 of" in printed and "trains      adapters of rank 2 in Backbone" in printed


@pytest.mark.parametrize("make, message", stored.rows(globals(), "what_cannot_be_trained_is_refused"))
def test_what_cannot_be_trained_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_frozen_pretrained_encoder_cannot_follow_a_probe(tmp_path):
    with pytest.raises(errors.InputError, match="set Pretrained.frozen = False"):
        run(tmp_path, pretrained=initial_encoder.Pretrained(path="any", frozen=True))


@pytest.mark.parametrize("recipe", ["robust_backbone", "normal_backbone"])
def test_a_recipe_probes_first_and_tunes_all(recipe):
    bindings = arguments(f"finetune/{recipe}.gin")
    pretraining, tuned = bindings["pretraining"], bindings["method"](backbone(), LinearHead(5))
    assert pretraining.probe and not pretraining.frozen and not bindings["pretrained"].frozen
    normal = recipe == "normal_backbone"
    assert (tuned.adversary.ramp is not None) == normal
    assert (bindings.get("publish_weights") == "averaged") == normal
    probe = pretraining.method(backbone(), LinearHead(5))
    assert hasattr(probe, "adversary") != normal
