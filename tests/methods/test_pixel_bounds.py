"""Plain methods train models that scale their input themselves, and check the pixels that these take."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrobust import keras as robust
from tfrobust.errors import InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 1)).astype("float32")
LABELS = np.arange(8) % 3
PARTS = robust.methods


def method(kind, scaled: bool, **keywords):
    keras.utils.set_random_seed(0)
    rescaling = [keras.layers.Rescaling(1 / 255)] if scaled else []
    layers = [*rescaling, keras.layers.Flatten(), keras.layers.Dense(4, activation="relu")]
    return kind(keras.Sequential(layers), robust.models.LinearHead(3), **keywords)


def losses(trained, images):
    trained.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return trained.fit(images, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0).history["loss"]


@pytest.mark.parametrize("kind", [PARTS.Supervised, PARTS.Mixup, PARTS.CutMix])
def test_training_in_bytes_equals_training_in_unit_pixels(kind):
    wide = losses(method(kind, True, bounds=(0, 255)), PIXELS)
    np.testing.assert_allclose(wide, losses(method(kind, False), PIXELS / 255), rtol=1e-5)


def test_other_pixels_and_other_bounds_are_refused():
    with pytest.raises(ValueError, match=r"pixels in \[0, 1\].* takes other `bounds`"):
        losses(method(PARTS.Supervised, True), PIXELS)
    with pytest.raises(ValueError, match=r"pixels in \[0, 200\]"):
        losses(method(PARTS.Supervised, True, bounds=(0, 200)), PIXELS)
    for bounds in (3, (1, 0), (0, float("inf")), ("a", "b"), (0, 1, 2)):
        with pytest.raises(InputError, match=r"Supervised.bounds is .*it is \(low, high\)"):
            method(PARTS.Supervised, True, bounds=bounds)
    with pytest.raises(InputError, match="leave out noise or bounds"):
        method(PARTS.Supervised, True, bounds=(0, 255), noise=robust.augment.AddGaussian())
    with pytest.raises(InputError, match="NFM has no argument 'bounds'"):
        method(PARTS.NFM, True, bounds=(0, 255))


def test_bounds_return_from_the_configuration():
    first = method(PARTS.Supervised, True, bounds=(0, 255))
    assert PARTS.Supervised.from_config(first.get_config()).bounds == (0.0, 255.0)


@pytest.mark.parametrize("kind", [PARTS.MTLIBP, PARTS.ReLUStability])
def test_bounds_of_pixels_are_those_of_the_attack(kind):
    """In bytes the terms are those of the same network in unit pixels."""
    terms = []
    for scale in (1.0, 255.0):
        keras.utils.set_random_seed(0)
        threat = robust.attacks.ThreatModel(epsilon=0.05 * scale, bounds=(0.0, scale))
        attack = robust.attacks.PGD(threat, steps=2, random_start="none")
        encoder = robust.models.CNN(((4,),), dense=(8,), pixel_mean=(0.5 * scale,), pixel_std=(0.25 * scale,))
        radius = {"epsilon": 0.05 * scale}
        trained = kind(encoder, robust.models.LinearHead(3), attack=attack, **radius)
        trained.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
        history = trained.fit(PIXELS / 255 * scale, LABELS, batch_size=8, shuffle=False, verbose=0).history
        terms.append([history[name][0] for name in sorted(history)])
    np.testing.assert_allclose(terms[1], terms[0], rtol=1e-3)


@pytest.mark.parametrize(
    "kind, keywords",
    [
        (PARTS.RoCL, {"views": robust.augment.AddGaussian(), "projection": robust.layers.LinearProjection(4)}),
        (PARTS.CLGaussian, {}),
        (PARTS.ASCL, {"transforms": PARTS.TwoTransforms(augmentation=robust.augment.ContrastiveViews())}),
    ],
)
def test_augmentations_see_unit_pixels(kind, keywords):
    """They clip to [0, 1], which would leave nothing of bytes but white images."""
    histories = []
    for scale in (1.0, 255.0):
        keras.utils.set_random_seed(0)
        threat = robust.attacks.ThreatModel(epsilon=0.05 * scale, bounds=(0.0, scale))
        attack = robust.attacks.PGD(threat, steps=1, random_start="none")
        encoder = robust.models.CNN(((4,),), dense=(8,), batch_normalization=False, pixel_std=scale)
        trained = kind(encoder, robust.models.LinearHead(3), attack=attack, **keywords)
        trained.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
        histories.append(trained.fit(PIXELS / 255 * scale, LABELS, batch_size=8, shuffle=False, verbose=0).history)
    assert histories[1].keys() == histories[0].keys()
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-3, err_msg=name)


class UnitTeacher(robust.methods.TeacherLogits):
    """Stands in for an export, whose pixels lie in [0, 1]: logits for HAT, utilities for FCL."""

    def __call__(self, images, labels=None):
        assert 0.5 < float(tf.reduce_max(images)) <= 1
        return tf.reshape(images, [-1, 64])[:, :3] if labels is None else images


def test_exports_that_teach_see_unit_pixels():
    attack = robust.attacks.PGD(robust.attacks.ThreatModel(epsilon=8.0, bounds=(0.0, 255.0)), steps=1)
    teacher, few = UnitTeacher(path="exported"), robust.augment.UtilityPerturbation(count=4)
    assert np.isfinite(losses(method(PARTS.HAT, True, helper=teacher, attack=attack), PIXELS)).all()
    for combine in ("replace", "add"):
        taught = method(PARTS.FCL, True, teacher=teacher, combine=combine, perturbation=few, attack=attack)
        assert np.isfinite(losses(taught, PIXELS)).all()
