"""The example of guides/checkpoints.md: the published network of Wong and Kolter, with random arrays and with theirs.

The environment variable TFROBUST_WK_FASHION names their arrays, models/fashion_mnist.pth of locuslab/convex_adversarial
as an .npz file.
"""

import os
import pathlib
import runpy

import keras
import numpy as np
import printed
import pytest

from tfrobust import keras as robust
from tfrobust.certification.certify import certified, certified_margins, decide
from tfrobust.certification.network import walk

SHAPES = {"0": (16, 1, 4, 4), "2": (32, 16, 4, 4), "5": (100, 1568), "7": (10, 100)}
DEBIAN = pathlib.Path(robust.data.FashionMnist.folders[0])
PUBLISHED = os.environ.get("TFROBUST_WK_FASHION", "")
published = pytest.mark.skipif(
    not (os.path.isfile(PUBLISHED) and DEBIAN.is_dir()),
    reason="TFROBUST_WK_FASHION names no file, or Fashion-MNIST (Debian's dataset-fashion-mnist) is not installed",
)


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Return a function that runs the example on arrays, and returns the model that it saves."""
    (block,) = [
        block
        for block in printed.blocks((printed.GUIDES / "checkpoints.md").read_text("utf-8"))
        if block.name == "wk_fashion.py"
    ]
    monkeypatch.chdir(tmp_path)

    def run(arrays, change=lambda text: text):
        np.savez("wk_fashion.npz", **arrays)
        pathlib.Path(block.name).write_text(change(block.text))
        runpy.run_path(block.name)
        return keras.models.load_model("wk_fashion.keras")

    return run


def as_in_pytorch(images, arrays):
    """Compute the network in NumPy as PyTorch does: channels first, one pixel of padding on every side."""
    hidden = images.transpose(0, 3, 1, 2).astype(np.float64)
    for name in ("0", "2"):
        padded = np.pad(hidden, [(0, 0), (0, 0), (1, 1), (1, 1)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (4, 4), (2, 3))[:, :, ::2, ::2]
        hidden = np.einsum("nchwij,ocij->nohw", windows, arrays[f"{name}.weight"])
        hidden = np.maximum(hidden + arrays[f"{name}.bias"][:, None, None], 0)
    hidden = hidden.reshape(len(images), -1) @ arrays["5.weight"].T + arrays["5.bias"]
    return np.maximum(hidden, 0) @ arrays["7.weight"].T + arrays["7.bias"]


def random_arrays():
    draw = np.random.default_rng(0)
    arrays = {f"{name}.weight": draw.normal(0, 0.1, shape).astype("f4") for name, shape in SHAPES.items()}
    return arrays | {f"{name}.bias": draw.normal(0, 0.1, shape[0]).astype("f4") for name, shape in SHAPES.items()}


def permuted(text: str) -> str:
    """Return the example with the alternative that the guide names."""
    start = text.index('    if name == "5"')
    lines = text[:start] + text[text.index("    layer.set_weights") :]
    return lines.replace("layers.Flatten()", "layers.Permute((3, 1, 2)), layers.Flatten()")


@pytest.mark.parametrize("change", [str, permuted])
def test_the_example_of_the_guide_computes_what_pytorch_computes(example, change):
    arrays, images = random_arrays(), np.random.default_rng(1).random((5, 28, 28, 1), np.float32)
    model = example(arrays, change)
    assert model.count_params() == 166_406
    np.testing.assert_allclose(model(images), as_in_pytorch(images, arrays), atol=1e-4)
    summary = robust.evaluate(
        model,
        images,
        np.arange(5),
        evaluators=[robust.evaluators.CertifiedAccuracy(threat=robust.attacks.ThreatModel(epsilon=0.1))],
    )
    assert "Certified accuracy, Linf eps = 0.1   0.0 %" in f"{summary}"


@pytest.fixture
def judged(example):
    data = robust.data.FashionMnist().load().test
    return example(dict(np.load(PUBLISHED))), *data.arrays()


@published
def test_the_published_network_has_its_published_accuracy(judged):
    model, images, labels = judged
    assert np.mean(np.argmax(model.predict(images, batch_size=1000, verbose=0), -1) == labels) == 0.7827


@published
@pytest.mark.rest
def test_bounds_and_attacks_enclose_the_exact_robust_accuracy(judged):
    """Mixed-integer programming leaves 67.6 % of the first 1,000 images (Croce et al. 2019), at 0.1 in Linf."""
    model, images, labels = judged
    images, labels = images[:1000], labels[:1000]
    attack = robust.attacks.AutoAttack(robust.attacks.ThreatModel(epsilon=0.1))
    report = robust.evaluate(model, images, labels, evaluators=[robust.evaluators.AttackAccuracy(attack=attack)])
    robust_accuracy = report["attack.autoattack_linf_0.1.accuracy"].value
    assert 0.676 <= robust_accuracy <= 0.678
    network = walk(model)
    bounds = {
        method: certified(certified_margins(network, images, labels, epsilon=0.1, method=method))
        for method in ("ibp", "crown_ibp", "crown")
    }
    shares = [bound.mean() for bound in bounds.values()]
    np.testing.assert_allclose(shares, (0.0, 0.182, 0.657), atol=0.002)
    # Branch and bound decides nearly all images, and contradicts no attack.
    (outcomes,) = [series.columns["right"][0] for series in report.series if series.id.startswith("outcomes.attack")]
    withstood = np.array(list(outcomes)) == "1"
    decisions = decide(network, images[:200], labels[:200], epsilon=0.1, seconds=30.0)
    proved = certified(decisions.margins)
    assert np.sum(~proved & ~decisions.broken) <= 2 and not np.any(bounds["crown"] & ~withstood)
    assert not np.any(proved & ~withstood[:200]) and not np.any(bounds["crown"][:200] & ~proved)
