"""ASCL: eqs 1 to 6 of Bui et al. 2021, its four selections and the released code's variants, by loops in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from oracles import contrastive, robust, tiny_network
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.augment import RandomShift
from tfrobust.keras.methods import ASCL, Adversary, Contrast, TwoTransforms
from tfrobust.keras.models import LinearProjection, MLPProjection
from tfrobust.keras.selections import GlobalSelection, HardSelection, LeakedSelection, SoftSelection

SELECTIONS = {
    "global": GlobalSelection(),
    "hard": HardSelection(),
    "soft": SoftSelection(),
    "leaked": LeakedSelection(),
    "leaked_code": LeakedSelection(counterpart="code"),
}
COUNT, TEMPERATURE = 9, 0.3


def build(objective="adversarial_training", selection="global", seed=0, **keywords):
    """A method on the tiny network with strong adversaries, so that many predictions change."""
    contrast = keywords.pop("contrast", None) or Contrast(selection=SELECTIONS[selection], temperature=TEMPERATURE)
    adversary = Adversary(
        attack=PGD(ThreatModel(epsilon=0.2), steps=2),
        objective="kl" if objective == "trades" else "cross_entropy",
    )
    return tiny_network.build(ASCL, seed=seed, objective=objective, adversary=adversary, contrast=contrast, **keywords)


def run(method, seed=0, count=COUNT):
    """(terms, labels, [(z, logits)] of all views by NumPy: the clean ones, then the adversarial ones)."""
    batch, context = tiny_network.batch(count, seed)
    views = method.make_views(batch, context)
    terms, _ = method.loss_terms(views, batch, context)
    names = sorted(views, key=lambda name: (name.startswith("adversarial"), name))
    return terms, batch.labels.numpy(), [tiny_network.forward(method, views[name]) for name in names]


def predicted(passes):
    return np.stack([logits.argmax(-1) for _, logits in passes])


def literal(z, labels, predictions, strategy, views=None):
    """Table 1 for any number of views of an image: the contrastive mean over the anchors of each image, [N].

    `views`: which of them take part. The other views of an image are always positives, except for
    "leaked_code".
    """
    views = range(len(z)) if views is None else views
    places = [(view, i) for view in views for i in range(len(labels))]
    positive, negative = np.zeros((2, len(places), len(places)), bool)
    for row, (view, i) in enumerate(places):
        for column, (other, j) in enumerate(places):
            alike = predictions[view][i] == predictions[other][j]
            if (view, i) == (other, j):
                continue
            if i == j:
                positive[row, column] = strategy != "leaked_code" or alike
            elif labels[i] == labels[j]:
                positive[row, column] = alike or not strategy.startswith("leaked")
            elif strategy == "hard":
                negative[row, column] = predictions[other][j] == labels[i]
            else:
                negative[row, column] = alike or strategy == "global"
    rows = np.concatenate([z[view] for view in views])
    values = contrastive.masked(rows, rows, positive, negative, TEMPERATURE, "cosine")
    return values.reshape(len(views), -1).mean(0)


# ------------------------------------------------------------------------------------- the contrastive term


@pytest.mark.parametrize("strategy", ["global", "hard", "soft", "leaked"])
def test_the_contrastive_term_is_eq_3_under_each_selection(strategy):
    terms, labels, passes = run(build(selection=strategy))
    z, predictions = [embedding for embedding, _ in passes], predicted(passes)
    assert 0 < (predictions[0] != predictions[1]).sum()
    expected = contrastive.ascl(z, labels, predictions, strategy, TEMPERATURE, "cosine")
    np.testing.assert_allclose(terms["contrastive"], expected, rtol=2e-3)
    for other in {"global", "hard", "soft", "leaked"} - {strategy}:
        assert np.abs(contrastive.ascl(z, labels, predictions, other, TEMPERATURE, "cosine") - expected).max() > 0.01
    # The mean over the 2N anchors, times two: the two oracles agree with each other.
    np.testing.assert_allclose(2 * literal(z, labels, predictions, strategy), expected, rtol=1e-9)


@pytest.mark.parametrize("kind", ["linf", "l2"])
def test_distances_are_taken_on_the_unit_sphere_if_asked(kind):
    terms_by_choice = {}
    for normalized in (True, False):
        contrast = Contrast(temperature=0.2, similarity=kind, normalized=normalized)
        terms, labels, passes = run(build(contrast=contrast))
        z = [
            embedding / np.linalg.norm(embedding, axis=-1, keepdims=True) if normalized else embedding
            for embedding, _ in passes
        ]
        terms_by_choice[normalized] = contrastive.ascl(z, labels, predicted(passes), "global", 0.2, kind)
        np.testing.assert_allclose(terms["contrastive"], terms_by_choice[normalized], rtol=2e-3)
    assert np.abs(terms_by_choice[True] - terms_by_choice[False]).max() > 0.1
    with pytest.raises(ValueError, match="no effect with the cosine"):
        Contrast(normalized=True)


@pytest.mark.parametrize("projection", [LinearProjection, MLPProjection])
def test_a_projection_stands_between_latent_and_contrast_alone(projection):
    head = projection(dim=4)
    method = build(selection="leaked", projection=head)
    terms, labels, passes = run(method)
    kernels = [np.asarray(weight, np.float64) for weight in head.weights]
    assert [kernel.ndim for kernel in kernels] == [2] * len(kernels)  # no bias, as the paper's
    projected = [z @ kernels[0] if len(kernels) == 1 else np.maximum(z @ kernels[0], 0) @ kernels[1] for z, _ in passes]
    expected = contrastive.ascl(projected, labels, predicted(passes), "leaked", TEMPERATURE, "cosine")
    np.testing.assert_allclose(terms["contrastive"], expected, rtol=2e-3)
    np.testing.assert_allclose(terms["ce"], tiny_network.cross_entropy(passes[0][1], labels), rtol=1e-3, atol=1e-5)


def test_gradients_flow_through_anchors_keys_and_both_sides_of_the_divergence():
    """Against central differences of the oracles, by entries of the encoder's kernel, with fixed views."""
    method = build()
    batch, context = tiny_network.batch(6)
    views = method.make_views(batch, context)
    labels = batch.labels.numpy()
    kernel = method.encoder.trainable_variables[0]
    with tf.GradientTape() as tape:
        terms, _ = method.loss_terms(views, batch, context)
        loss = tf.reduce_mean(terms["contrastive"]) + 2 * tf.reduce_mean(terms["vat"])
    gradient = tape.gradient(loss, kernel).numpy()
    initial = kernel.numpy()

    def value(entry, move):
        changed = initial.astype(np.float64)
        changed[entry] += move
        kernel.assign(changed)
        passes = [tiny_network.forward(method, views[name]) for name in ("images", "adversarial")]
        z, (clean, adversarial) = [embedding for embedding, _ in passes], [logits for _, logits in passes]
        pulled = contrastive.ascl(z, labels, predicted(passes), "global", TEMPERATURE, "cosine")
        return pulled.mean() + 2 * robust.kl(clean, adversarial).mean()

    for entry in [(0, 0), (2, 1), (3, 4), (5, 2)]:
        slope = (value(entry, 2**-9) - value(entry, -(2**-9))) / 2**-8
        assert gradient[entry] == pytest.approx(slope, rel=0.01, abs=2e-3), entry


# --------------------------------------------------------------------------------------- the other terms


@pytest.mark.parametrize("objective", ["adversarial_training", "trades"])
@pytest.mark.parametrize("by_classes", [False, True])
def test_the_terms_of_eqs_4_and_5(objective, by_classes):
    terms, labels, passes = run(build(objective, vat_divide_by_classes=by_classes))
    (_, clean), (_, adversarial) = passes
    divergence = robust.kl(clean, adversarial)
    np.testing.assert_allclose(terms["ce"], tiny_network.cross_entropy(clean, labels), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(terms["vat"], divergence / (3 if by_classes else 1), rtol=2e-3, atol=1e-5)
    if objective == "trades":
        np.testing.assert_allclose(terms["kl"], divergence, rtol=2e-3, atol=1e-5)
    else:
        expected = tiny_network.cross_entropy(adversarial, labels)
        np.testing.assert_allclose(terms["ce_adv"], expected, rtol=1e-3, atol=1e-5)


def test_the_loss_is_eq_6_with_the_paper_s_weights():
    for objective in ("adversarial_training", "trades"):
        method = build(objective)
        method.compile(optimizer=keras.optimizers.SGD(0.0), jit_compile=False)
        batch, _ = tiny_network.batch()
        logs = {name: float(value) for name, value in method.train_step((batch.images, batch.labels)).items()}
        second = 6 * logs["kl"] if objective == "trades" else logs["ce_adv"]
        assert logs["loss"] == pytest.approx(logs["ce"] + second + logs["contrastive"] + 2 * logs["vat"], rel=1e-5)
        assert min(logs["vat"], logs["contrastive"]) > 0.05


# ------------------------------------------------------------------------------------------ two transforms

GROUPS = {"joint": ((0, 1, 2, 3),), "by_kind": ((0, 1), (2, 3)), "by_transform": ((0, 2), (1, 3))}
SHIFT = RandomShift(fraction=0.6)


@pytest.mark.parametrize("combine", GROUPS)
@pytest.mark.parametrize("strategy", ["global", "leaked_code"])
def test_two_transforms_are_contrasted_as_the_released_code_combines_them(combine, strategy):
    transforms = TwoTransforms(augmentation=SHIFT, combine=combine)
    terms, labels, passes = run(build(selection=strategy, transforms=transforms))
    assert len(passes) == 4
    z, predictions = [embedding for embedding, _ in passes], predicted(passes)
    terms_by_choice = {
        name: 2 * np.mean([literal(z, labels, predictions, strategy, group) for group in groups], axis=0)
        for name, groups in GROUPS.items()
    }
    np.testing.assert_allclose(terms["contrastive"], terms_by_choice[combine], rtol=2e-3, atol=1e-6)
    assert all(
        np.abs(terms_by_choice[other] - terms_by_choice[combine]).max() > 0.01 for other in GROUPS if other != combine
    )
    logits = [view_logits for _, view_logits in passes]
    entropies = [tiny_network.cross_entropy(view_logits, labels) for view_logits in logits]
    np.testing.assert_allclose(terms["ce"], np.mean(entropies[:2], axis=0), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(terms["ce_adv"], np.mean(entropies[2:], axis=0), rtol=1e-3, atol=1e-5)
    vat = [robust.kl(logits[0], logits[2]), robust.kl(logits[1], logits[3])]
    np.testing.assert_allclose(terms["vat"], np.mean(vat, axis=0), rtol=2e-3, atol=1e-5)


def test_each_transform_is_a_draw_of_its_own_with_its_own_adversary():
    method = build(transforms=TwoTransforms(augmentation=SHIFT))
    batch, context = tiny_network.batch()
    views = {name: np.asarray(view) for name, view in method.make_views(batch, context).items()}
    assert set(views) == {"images_1", "adversarial_1", "images_2", "adversarial_2"}
    assert np.abs(views["images_1"] - views["images_2"]).max(axis=(1, 2, 3)).min() > 1e-3
    for number in "12":
        gap = np.abs(views[f"adversarial_{number}"] - views[f"images_{number}"])
        assert 0.1 < gap.max() <= 0.2 + 1e-6
    assert method.passes_per_step == 2 * build().passes_per_step == 2 * (2 + 2)


# ------------------------------------------------------------------------------------------------- counting


def test_positives_and_negatives_are_counted_clean_and_adversarial_apart():
    terms, labels, passes = run(build(selection="leaked"), count=12)
    predictions = predicted(passes)
    for i in range(len(labels)):
        counts = np.zeros((2, 2))  # positive or negative; clean or adversarial key
        for view in (0, 1):
            positives, negatives = contrastive.table_1("leaked", labels, predictions, i, view)
            for sign, keys in enumerate(([*positives, (i, 1 - view)], negatives)):
                for _, kind in keys:
                    counts[sign, kind] += 0.5  # the mean over the image's two anchors
        for sign, name in enumerate(("positives", "negatives")):
            assert float(terms[f"{name}_clean"][i]) == counts[sign, 0]
            assert float(terms[f"{name}_adversarial"][i]) == counts[sign, 1]
