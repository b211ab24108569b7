"""The toy problem: its points are what it says, its schemes the six of the paper, and it draws them."""

import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture
def tool(load):
    return load("toy_problem").toy_problem


def test_the_classes_lie_on_two_stars_one_half_as_large(tool, monkeypatch):
    monkeypatch.setattr(tool, "NOISE", 0.0)
    places, labels = tool.points(4000, np.random.default_rng(0))
    radius = np.linalg.norm(places, axis=1)
    assert np.bincount(labels).tolist() == [2000, 2000]
    for label, size in ((0, 0.5), (1, 1.0)):
        radii = radius[labels == label]
        np.testing.assert_allclose([radii.min(), radii.max()], [0.8 * size, 1.2 * size], atol=2e-3)
    up = places[(labels == 1) & (np.abs(places[:, 0]) < 0.02)]
    assert np.abs(up[:, 1].max() - 1.2) < 0.05 and np.abs(up[:, 1].min() + 0.8) < 0.05  # a tip above, a dent below


def test_the_encoder_sees_the_plane(tool):
    places = np.array([[-1.5, 0.25], [0.0, 1.0]], np.float32)
    images = tf.constant(tool.as_images(places))
    assert images.shape == (2, 1, 1, 2) and 0 <= np.min(images) and np.max(images) <= 1
    encoder = tool.Perceptron(pixel_mean=0.5, pixel_std=0.25)
    encoder.build((None, 1, 1, 2))
    np.testing.assert_allclose(np.reshape(encoder.standardize(images), [2, 2]), places, atol=1e-6)
    seen = []
    encoder(images, at_stage=lambda index, hidden: seen.append((index, *hidden.shape[1:])) or hidden)
    assert seen == [(0, 1, 1, 2), (1, 32)]


def test_it_prints_and_draws(tool, monkeypatch, tmp_path, capsys):
    every = tool.schemes()
    names = ["Baseline", "Noise injection", "Manifold Mixup", "NFM", "Manifold Mixup + JSD", "NoisyMix"]
    assert list(every) == names
    # The methods have tests of their own: here the first and the last, to save time.
    few = {name: every["NoisyMix" if name == "NoisyMix" else "Baseline"] for name in names}
    monkeypatch.setattr(tool, "schemes", lambda: few)
    assert tool.main([f"--output={tmp_path / 'toy.png'}", "--epochs=10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in lines[1:7]:
        assert float(line.split()[-2]) > 70.0, line  # of 100,000 fresh points; guessing has 50
    assert (tmp_path / "toy.png").read_bytes()[:4] == b"\x89PNG" and lines[-1].endswith("toy.png")
