"""Transfer: an encoder starts from a published model's weights, stays frozen or moves on, and fits or is refused."""

import json

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust import errors, saving
from tfrobust.keras.models import CNN, R3D18, LinearHead
from tfrobust.methods.supervised import Supervised
from tfrobust.runs.initial_encoder import Pretrained
from tfrobust.security import rehearsal
from tfrobust.serving.export import saved_model as export

SHAPE = (8, 8, 1)
IMAGES = np.random.default_rng(0).uniform(size=(6, *SHAPE)).astype("float32")


def cnn(shape=SHAPE, **keywords):
    encoder = CNN(((4,), (6,)), dense=keywords.pop("dense", (5,)), pooling="stride", **keywords)
    encoder.build((None, *shape))
    return encoder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """An encoder with moved batch statistics, and where it is: {"version", "versions", "method"}."""
    keras.utils.set_random_seed(5)
    folder = tmp_path_factory.mktemp("source")
    method = Supervised(cnn(), LinearHead(10))
    method.build((None, *SHAPE))
    method(IMAGES, training=True)
    version = folder / "small" / "1"
    version.parent.mkdir()
    parts = {"encoder": method.encoder, "head": method.head, "image_shape": SHAPE}
    export.write_saved_model(version, **parts)
    saving.save(method, folder / "method.keras")
    return method.encoder, {"version": version, "versions": version.parent, "method": folder / "method.keras"}


@pytest.mark.parametrize("kind", ["version", "versions", "method"])
def test_an_encoder_takes_over_the_weights(source, kind):
    original, places = source
    encoder = cnn()
    assert not np.allclose(encoder(IMAGES), original(IMAGES))
    facts = Pretrained(path=str(places[kind]), frozen=True).give(encoder, SHAPE)
    np.testing.assert_array_equal(encoder(IMAGES), original(IMAGES))
    assert encoder.trainable_variables == [] and facts["frozen"]
    assert facts["source"] == ("method.keras" if kind == "method" else "small/1") and len(facts["weights_sha256"]) == 64


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_encoder_does_not_move_and_a_fine_tuned_one_does(source, frozen):
    original, places = source
    method = Supervised(cnn(), LinearHead(3))
    method.build((None, *SHAPE))
    Pretrained(path=str(places["version"]), frozen=frozen).give(method.encoder, SHAPE)
    method.compile("adam")
    head = method.head.get_weights()
    method.fit(IMAGES, np.arange(6) % 3, epochs=2, batch_size=3, verbose=0)
    pairs = zip(method.encoder.get_weights(), original.get_weights(), strict=True)
    assert [np.array_equal(new, old) for new, old in pairs] == [frozen] * len(original.variables)
    assert not np.array_equal(method.head.get_weights()[0], head[0])


def test_a_frozen_encoder_is_frozen_when_read_again(source, tmp_path):
    method = Supervised(cnn(), LinearHead(3))
    method.build((None, *SHAPE))
    Pretrained(path=str(source[1]["method"]), frozen=True).give(method.encoder, SHAPE)
    saving.save(method, tmp_path / "probe.keras")
    again = saving.load(tmp_path / "probe.keras")
    assert again.encoder.trainable_variables == [] and len(again.trainable_variables) == 2
    np.testing.assert_array_equal(again(IMAGES), method(IMAGES))


def test_weights_from_pytorch_start_an_encoder(tmp_path, capsys):
    from tfrobust.models.resnets.wide_resnet import WideResNet
    from tfrobust.models.weights import checkpoints

    encoder = WideResNet(10, 1)
    encoder.build((None, 8, 8, 3))
    draw = np.random.default_rng(3)
    tensors = {name: draw.uniform(0.5, 1, shape) for name, shape in checkpoints.shapes(encoder).items()}
    tensors |= {"fc.weight": np.ones((7, 64)), "fc.bias": np.ones(7)}
    np.savez(tmp_path / "weights.npz", **tensors)
    facts = Pretrained(path=str(tmp_path / "weights.npz"), frozen=True).give(encoder, (8, 8, 3))
    assert facts["source"] == "weights.npz" and facts["frozen"] and encoder.trainable_variables == []
    assert "ignored: fc.weight, fc.bias" in capsys.readouterr().out
    kernel = encoder.stage_layers[0][0].chain[0].kernel
    np.testing.assert_array_equal(kernel, tensors["conv1.weight"].transpose(2, 3, 1, 0).astype("float32"))
    np.savez(tmp_path / "weights.npz", **(tensors | {"conv1.weight": tensors["conv1.weight"] * 2}))
    again = Pretrained(path=str(tmp_path / "weights.npz"), frozen=True).give(encoder, (8, 8, 3))
    assert again["weights_sha256"] != facts["weights_sha256"]


def test_images_of_another_size_where_the_network_takes_them(tmp_path):
    original = cnn(dense=())
    saving.save(original, tmp_path / "encoder.keras")
    encoder = cnn((12, 12, 1), dense=())
    Pretrained(path=str(tmp_path / "encoder.keras")).give(encoder, (12, 12, 1))
    for here, there in zip(encoder.variables, original.variables, strict=True):
        np.testing.assert_array_equal(here, there)


@pytest.mark.rest
def test_an_encoder_of_clips_starts_from_an_export_and_from_a_file(tmp_path):
    shape = (4, 8, 8, 1)
    method = Supervised(R3D18("small", width=1), LinearHead(2))
    method.build((None, *shape))
    export.write_saved_model(tmp_path / "1", encoder=method.encoder, head=method.head, image_shape=shape)
    saving.save(method, tmp_path / "method.keras")
    for name in ("1", "method.keras"):
        encoder = R3D18("small", width=1)
        encoder.build((None, *shape))
        Pretrained(path=str(tmp_path / name)).give(encoder, shape)
        for here, there in zip(encoder.variables, method.encoder.variables, strict=True):
            np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("encoder, shape, fault", stored.rows(globals(), "another_network_is_refused"))
def test_another_network_is_refused(source, encoder, shape, fault):
    for kind in ("version", "method"):
        with pytest.raises(errors.InputError, match=fault) as caught:
            Pretrained(path=str(source[1][kind])).give(encoder(), shape)
        assert "another network" in str(caught.value) and len(str(caught.value)) <= 300


def test_what_is_no_source_is_named(tmp_path):
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    saving.save(plain, tmp_path / "plain.keras")
    tf.saved_model.save(tf.Module(), str(tmp_path / "foreign"))
    rehearsal.remember(tmp_path / "foreign")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("nothing")
    for name, fault in stored.table(globals(), "what_is_no_source_is_named"):
        with pytest.raises(errors.InputError, match=fault) as caught:
            Pretrained(path=str(tmp_path / name)).give(cnn(), SHAPE)
        assert str(caught.value).startswith("Pretrained.path: ") and len(str(caught.value)) <= 300


def test_the_recipe_takes_an_export_to_other_digits(tmp_path, monkeypatch, capsys):
    """The two commands of gin/transfer.gin, then another size of network, which is refused."""
    from tfrobust.commands import train

    monkeypatch.chdir(tmp_path)
    quick = ["--gin_param=EVALUATORS=[@CleanAccuracy()]", "--gin_param=EPOCHS=3"]
    assert train.main(["--gin_file=gin/transfer.gin", *quick]) == 2
    assert "there is no model at exported/supervised" in capsys.readouterr().err
    assert train.main(["--gin_file=gin/supervised.gin", "--gin_file=gin/data/digits_0_to_4.gin", *quick]) == 0
    assert train.main(["--gin_file=gin/transfer.gin", *quick]) == 0
    report = json.loads((tmp_path / "runs/transfer/robustness_report.json").read_text())
    # The settings of parts that are constructed after the stages, too.
    assert "RobustAccuracy.every = 5" in (tmp_path / "runs/transfer/config.gin").read_text()
    origin = report["training"]["pretrained"]
    assert origin["source"] == "supervised/1" and origin["frozen"] and report["data"]["class_names"] == list("56789")
    there, here = (tf.saved_model.load(str(tmp_path / "exported" / n / "1")) for n in ("supervised", "transfer"))
    images = tf.constant(IMAGES)
    answers = [model.signatures["serving_default"](images=images) for model in (there, here)]
    np.testing.assert_array_equal(*(answer["embedding"] for answer in answers))
    assert answers[1]["logits"].shape == (6, 5)
    capsys.readouterr()
    flags = [*quick, "--gin_param=DigitsCNN.pooling='max'", "--workdir=runs/other"]
    assert train.main(["--gin_file=gin/transfer.gin", *flags]) == 2
    assert (
        "ENCODER is DigitsCNN, another network than the encoder of supervised/1 (DigitsCNN)" in capsys.readouterr().err
    )
