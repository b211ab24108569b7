"""The endpoint of the smoothed classifier: answers, entropy, verification, scan and client."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from serving.helpers import serving

from tfrobust.certification import smoothing, smoothing_noise
from tfrobust.commands import export as export_command
from tfrobust.commands import query as query_command
from tfrobust.security import saved_models
from tfrobust.serving import client
from tfrobust.serving.export import assets, probe, publish, smoothed, verify
from tfrobust.serving.export import saved_model as export

SHAPE = (2, 2, 1)
OPTIONS = {"sigma": 0.3, "selection": 40, "draws": 300, "copies": 64}
IMAGES = np.random.default_rng(0).uniform(size=(5, *SHAPE)).astype(np.float32)


def parts():
    """Encoder and head of a linear model, whose classes are which of three pixels is the brightest."""
    encoder = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten()])
    head = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    head.layers[-1].set_weights([10 * np.eye(4)[:, :3], np.zeros(3)])
    return {"encoder": encoder, "head": head, "image_shape": SHAPE, "class_names": ("a", "b", "c")}


def logits(images):
    return 10.0 * tf.reshape(images, [-1, 4])[:, :3]


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    directory = tmp_path_factory.mktemp("smoothed") / "1"
    assets.assemble(directory, **parts(), smoothing=smoothed.ServedSmoothing(**OPTIONS))
    return directory


@pytest.fixture(scope="module")
def loaded(version):
    return saved_models.load(version)


def test_an_answer_is_the_certificate_of_the_seed_that_it_returns(loaded):
    answers = {name: value.numpy() for name, value in loaded.signatures["serving_smoothed"](images=IMAGES).items()}
    assert {name: value.dtype.name for name, value in answers.items()} == {
        "class": "int32",
        "radius": "float64",
        "abstain": "bool",
        "seed": "int32",
    }
    voting = smoothing.Voting(logits, SHAPE, smoothing_noise.Gaussian(0.3), copies=64)
    votes = [voting.both(*pair, 40, 300) for pair in zip(IMAGES, tf.unstack(answers["seed"]), strict=True)]
    options = {"noise": smoothing_noise.Gaussian(0.3), "alpha": 0.001, "values": 4}
    expected = smoothing.certificates(*map(np.stack, zip(*votes, strict=True)), 300, **options)
    np.testing.assert_array_equal(answers["class"], expected.classes)
    np.testing.assert_array_equal(answers["radius"], expected.radii)
    np.testing.assert_array_equal(answers["abstain"], expected.classes == -1)
    assert expected.radii.max() > 0


def test_uniform_noise_has_its_own_radii():
    served_smoothing = smoothed.ServedSmoothing(**OPTIONS, noise="uniform")
    image, seed = tf.constant(IMAGES[:1]), tf.constant([[3, 4]])
    answers = served_smoothing.from_seed(logits, SHAPE, 3)(image, seed)
    voting = smoothing.Voting(logits, SHAPE, smoothing_noise.Uniform(0.3), copies=64)
    options = {"noise": smoothing_noise.Uniform(0.3), "alpha": 0.001, "values": 4}
    first, second = voting.both(IMAGES[0], seed[0], 40, 300)
    assert answers["radius"][0] == smoothing.certificates(first[None], second[None], 300, **options).radii[0]


def test_no_client_knows_or_chooses_the_noise(loaded):
    endpoint = loaded.signatures["serving_smoothed"]
    assert list(endpoint.structured_input_signature[1]) == ["images"]
    assert probe.FROM_SEED not in loaded.signatures and hasattr(loaded, probe.FROM_SEED)
    images = tf.constant(IMAGES[[0, 0, 0]])
    seeds = np.concatenate([endpoint(images=images)["seed"].numpy() for _ in range(3)])
    assert len(np.unique(seeds, axis=0)) == 9  # not a function of the image
    assert [probe.entropy_of(loaded.signatures[name]) for name in sorted(loaded.signatures)] == [0, 0, 0, 1]


def test_the_export_is_scanned_and_verified_in_a_clean_process(version):
    assert saved_models.scan(version) == []
    result = verify.verify(version)
    assert result.passed, result.problems
    assert "smoothed" in result.checks


@pytest.mark.parametrize("options, seconds", [({}, None), ({"timeout": 9.0}, 9.0)])
def test_the_replay_of_a_smoothed_classifier_may_take_any_time(version, monkeypatch, options, seconds):
    limits = []

    def run(command, *, timeout, **options):
        limits.append(timeout)
        return SimpleNamespace(stderr="", returncode=1)

    monkeypatch.setattr(verify.subprocess, "run", run)
    assert not verify.verify(version, **options).passed and limits == [seconds]
    monkeypatch.setattr(verify.probe, "GOLDEN_FILE", "missing")
    assert not verify.verify(version).passed and limits == [seconds, 300.0]


def test_other_recorded_answers_are_seen(version, tmp_path):
    import shutil

    copy = shutil.copytree(version, tmp_path / "2")
    golden = probe.read_golden(copy)
    golden["smoothed_radius"] = golden["smoothed_radius"] + 1e-9
    np.savez(copy / probe.GOLDEN_FILE, **golden)
    publish.write_sums(copy)
    problems = probe.check(copy)
    assert problems["smoothed"] == ["'serving_smoothed' does not reproduce the recorded radius of its seed."]
    without = {name: array for name, array in golden.items() if not name.startswith("smoothed")}
    np.savez(copy / probe.GOLDEN_FILE, **without)
    publish.write_sums(copy)
    assert "has no answers" in probe.check(copy)["smoothed"][0]


def test_an_endpoint_with_a_fixed_seed_is_refused(tmp_path, monkeypatch):
    def fixed(from_seed):
        return lambda images: from_seed(images, tf.tile([[1, 2]], [tf.shape(images)[0], 1]))

    monkeypatch.setattr(export, "with_entropy", fixed)
    assets.assemble(tmp_path / "1", **parts(), smoothing=smoothed.ServedSmoothing(**OPTIONS))
    problems = probe.check(tmp_path / "1")
    assert problems["signatures"] == ["'serving_smoothed' has 0 operations NonDeterministicInts; expected 1."]
    model = saved_models.load(tmp_path / "1")
    assert probe.check_smoothed(model, probe.read_golden(tmp_path / "1")) == ["'serving_smoothed' used a seed twice."]


def test_a_client_gets_class_radius_and_seed(version, tmp_path, capsys):
    image = tmp_path / "images.npy"
    np.save(image, IMAGES)
    with serving("smooth", version, 1, tmp_path) as server:
        for url in (server.rest_url, server.grpc_url):
            with client.Client(url, "smooth") as asked:
                answers = asked.smoothed(IMAGES, batch_size=2)
                assert answers["class"].shape == answers["radius"].shape == (5,) and answers["seed"].shape == (5, 2)
                assert ((answers["class"] == -1) == answers["abstain"]).all()
            arguments = [f"--url={url}", "--model=smooth", f"--image={image}", "--smoothed"]
            assert query_command.main([*arguments, "--format=json"]) == 0
            entries = json.loads(capsys.readouterr().out)["smoothed"]
            assert len(entries) == 5 and all((entry["predicted"] is None) == entry["abstains"] for entry in entries)
            assert query_command.main(arguments) == 0
            assert "radius" in capsys.readouterr().out
    assert query_command.main(["--url=http://127.0.0.1:1", "--model=x", "--metadata", "--smoothed"]) == 2


def test_wrong_settings_are_named(tmp_path, capsys):
    encoder = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])
    head = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    text_parts = {"encoder": encoder, "head": head, "image_shape": (5,), "vocabulary": ("[PAD]", "[UNK]", "a")}
    with pytest.raises(ValueError, match="cannot be smoothed"):
        export.write_saved_model(tmp_path, **text_parts, smoothing=smoothed.ServedSmoothing(sigma=0.1))
    assert export_command.main(["--model=exported/x", "--onnx", "--smoothing=0.2"]) == 2
    assert "--smoothing adds an endpoint" in capsys.readouterr().err
