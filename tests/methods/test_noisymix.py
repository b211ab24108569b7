"""NoisyMix by loops, given the draws; what it is without each of its parts."""

import numpy as np
import pytest
import stored

from oracles import tiny_network
from oracles.consistency import jensen_shannon
from oracles.mixing import (
    drawn,
    literal_forward,
    mixed_by_rows,
    mixed_entropy,
    stage_that_explains,
    staged,
    step,
)
from tfrobust.keras.augment import FeatureNoise, Mixing, RandomShift
from tfrobust.keras.methods import NFM, Branches, NoisyMix
from tfrobust.methods.augmix import AUGMENTED
from tfrobust.ops import randomness

SHIFT = RandomShift(fraction=0.5)
CODE = Branches(strengths=(1.0, 2.0, 3.0), noise_without_mixing=False)


def noisymix(*, mixing=None, **keywords):
    method = staged(NoisyMix, **{"stages": (0, 1, 2), "augmentation": SHIFT, **keywords})
    method.mixing = mixing or method.mixing
    return method


def terms_of(method, batch, context):
    views = method.make_views(batch, context)
    terms, logits = method.loss_terms(views, batch, context)
    assert tuple(terms) == method.terms
    return {name: view.numpy() for name, view in views.items()}, terms, logits.numpy()


def changes_of(method, context):
    """(hidden, branch) -> hidden, mixed by rows and noised entry by entry; only the random numbers are given."""
    weights, partner = drawn(method, context)
    key, shared = randomness.fold(context.key, "noise"), method.branches.noise == "shared"
    scales = method.noise.scales(key, 1 if shared else 3).numpy()

    def change(hidden, branch):
        noise_number = 0 if shared else branch
        unit = method.noise.draw(key, (8, 1 if shared else 3, *hidden.shape[1:]), scales=[1.0, 1.0])
        multiplied, added = unit["factor"].numpy()[:, noise_number] - 1.0, unit["offset"].numpy()[:, noise_number]
        mixed = mixed_by_rows(hidden, weights, partner)
        for entry in np.ndindex(*mixed.shape):
            mixed[entry] *= 1.0 + scales[noise_number, 0] * multiplied[entry]
            mixed[entry] += method.branches.strengths[branch] * scales[noise_number, 1] * added[entry]
        return mixed

    return change


@pytest.mark.parametrize("branches", [Branches(), Branches(noise="shared"), CODE], ids=["paper", "shared", "code"])
def test_three_branches_share_stage_weight_and_partners_and_the_terms_are_the_papers(branches):
    method, seen = noisymix(branches=branches), set()
    for number in range(8):
        batch, context = step(number)
        weights, partner = drawn(method, context)
        if np.all(partner == np.arange(8)):
            continue
        change = changes_of(method, context)
        views, terms, logits = terms_of(method, batch, context)
        stage = stage_that_explains(method, batch, logits, lambda hidden, change=change: change(hidden, 0))
        seen.add(stage)
        branch_logits = [
            literal_forward(method, views[name], stage, lambda hidden, b=branch, change=change: change(hidden, b))
            for branch, name in enumerate(("images", *AUGMENTED))
        ]
        expected = mixed_entropy(branch_logits[0], batch.labels.numpy(), weights, partner)
        np.testing.assert_allclose(terms["ce"], expected, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(terms["jsd"], jensen_shannon(branch_logits), rtol=2e-3, atol=1e-5)
        assert terms["jsd"].numpy().max() > 0.01
    assert len(seen) > 1


# ------------------------------------------------------------------------------------------ what Table 4 takes away


def test_one_branch_of_plain_images_is_noisy_feature_mixup():
    noise = FeatureNoise(additive=0.5, multiplicative=0.5, sparsity=0.65)
    single = noisymix(augmentation=None, consistency=False, noise=noise)
    other = staged(NFM, stages=(0, 1, 2), noise=noise)
    for number in range(3):
        batch, context = step(number)
        _, terms, logits = terms_of(single, batch, context)
        expected, plain_logits = other.loss_terms(other.make_views(batch, context), batch, context)
        np.testing.assert_array_equal(terms["ce"], expected["ce_mixed"])
        np.testing.assert_array_equal(logits, plain_logits)


def test_one_branch_is_the_augmented_image():
    method = noisymix(consistency=False, noise=FeatureNoise(additive=0, multiplicative=0), mixing=Mixing(alpha=0.0))
    batch, context = step(0)
    views, terms, logits = terms_of(method, batch, context)
    assert list(views) == ["images", AUGMENTED[0]] and method.passes_per_step == 1
    expected = literal_forward(method, views[AUGMENTED[0]], None, None)
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-4)
    labels = batch.labels.numpy()
    np.testing.assert_allclose(terms["ce"], tiny_network.cross_entropy(expected, labels), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("branches, noise, apart", stored.rows(globals(), "branches_of_the_same_images_differ_by"))
def test_branches_of_the_same_images_differ_by_their_noise_alone(branches, noise, apart):
    method = noisymix(augmentation=None, branches=branches, noise=noise)
    views, terms, _ = terms_of(method, *step(0))
    assert list(views) == ["images"]
    assert terms["jsd"].numpy().max() > 1e-3 if apart else np.abs(terms["jsd"]).max() < 1e-6


def test_without_mixing_the_paper_keeps_the_noise_and_the_code_has_none():
    batch, context = step(0)
    plain = literal_forward(noisymix(), batch.images, None, None)
    for branches, noisy in ((Branches(), True), (CODE, False)):
        _, terms, logits = terms_of(noisymix(branches=branches, mixing=Mixing(alpha=0.0)), batch, context)
        assert np.allclose(logits, plain, rtol=1e-3, atol=1e-4) is not noisy
        expected = tiny_network.cross_entropy(logits.astype(np.float64), batch.labels.numpy())
        np.testing.assert_allclose(terms["ce"], expected, rtol=1e-3, atol=1e-5)


# ------------------------------------------------------------------------------------------------- configuration


def test_the_pipeline_makes_one_view_for_each_augmented_branch():
    batch, context = step(0)
    keys = randomness.example_keys(randomness.make_key(1), batch.index)
    for consistency, augmentation, names in ((True, SHIFT, AUGMENTED), (False, SHIFT, AUGMENTED[:1]), (True, None, ())):
        method = noisymix(consistency=consistency, augmentation=augmentation)
        host_views = method.host_views(batch.images, keys)
        assert tuple(host_views) == names == method.host_view_names
        views = method.make_views(batch._replace(extra=host_views), context)
        assert all(views[name] is host_views[name] for name in names)
