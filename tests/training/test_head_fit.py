"""Heads that are fitted in the place of a training: what is served beside scikit-learn, resume, refusals."""

import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from faults.whole_run import train_in
from sklearn.neighbors import KNeighborsClassifier

from conformance import methods as battery
from tfrobust.errors import InputError
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.data import Digits, LabelledFraction
from tfrobust.keras.losses import Tikhonov
from tfrobust.keras.methods import AdversarialTraining, SimCLR, Supervised
from tfrobust.keras.models import CNN, KNearestNeighbours, LogisticRegression
from tfrobust.runs import first_stage
from tfrobust.training.head_fit import HeadFit

DIGITS = Digits(validation_size=100)
FEW = LabelledFraction(source=DIGITS, fraction=0.1)

ATTACK = PGD(ThreatModel(epsilon=0.2))


def encoder():
    return CNN(((4,), (6,)), dense=(8,))


def run(folder, **changed):
    """A whole run in two stages that measures nothing, in a folder."""
    first = {"method": lambda **parts: SimCLR(views=battery.SHIFT, **parts), "optimizer": keras.optimizers.Adam}
    first |= {"epochs": 1, "batch_size": 128, "data": DIGITS, "frozen": changed.pop("frozen", True)}
    parts = {"encoder": encoder, "head": KNearestNeighbours, "data": FEW, "batch_size": 64}
    return train_in(folder, **parts | {"pretraining": first_stage.Pretraining(**first)} | changed)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    return folder, run(folder)


def served(folder, images, version=1):
    loaded = tf.saved_model.load(str(folder / "exported" / "small" / str(version)))
    return {name: value.numpy() for name, value in loaded.signatures["serving_default"](images=images).items()}


def test_what_is_served_is_scikit_learn_s_vote_of_the_embeddings_that_are_served(published):
    folder, report = published
    data = FEW.load()
    (train, labels), (test, _) = data.train.arrays(), data.test.arrays(100)
    voters, asked = (served(folder, tf.constant(images)) for images in (train, test))
    # 134 examples, fewer than the 200 neighbours asked for: all vote.
    peer = KNeighborsClassifier(len(train), metric="cosine", weights=lambda distance: np.exp(-distance / 0.07))
    peer.fit(voters["embedding"], labels)
    np.testing.assert_allclose(asked["probabilities"], peer.predict_proba(asked["embedding"]), atol=2e-4)
    assert report.data["train_size"] == 134 and report.training["pretraining"]["train_size"] == 1337
    stored = json.loads((folder / "run" / "training.json").read_text())
    assert stored["method"]["config"]["head"]["class_name"] == "KNearestNeighbours"
    assert stored["pretraining"]["method"]["config"]["head"]["class_name"] == "LinearHead"
    assert report.training["epochs"] == 0
    assert report.training["fit"] == {"head": "KNearestNeighbours", "examples": 134, "neighbours": 134}


def test_the_same_command_again_finds_its_version_and_warns_of_nothing(published, caplog):
    folder, report = published
    again = run(folder)
    assert not caplog.records
    assert (again.model["version"], again.model["weights_sha256"]) == (1, report.model["weights_sha256"])


def test_attacks_apply_to_a_vote():
    method = Supervised(encoder(), KNearestNeighbours(10, neighbours=None, examples=200))
    images, labels = DIGITS.load().train.arrays(200)
    method.build((None, *images.shape[1:]))
    method.head.fit_features(method.embed(images).numpy(), labels)
    batch, truth = tf.constant(images[:16]), tf.constant(labels[:16])

    def loss(where):
        return tf.nn.sparse_softmax_cross_entropy_with_logits(truth, method(where))

    with tf.GradientTape() as tape:
        tape.watch(batch)
        before = loss(batch)
    gradient = tape.gradient(before, batch)
    assert np.all(np.abs(gradient).max(axis=(1, 2, 3)) > 0)
    after = loss(tf.clip_by_value(batch + 0.02 * tf.sign(gradient), 0.0, 1.0))
    assert float(tf.reduce_mean(tf.cast(after > before, tf.float32))) > 0.9


def test_logistic_regression_is_fitted_to_the_training_images_as_they_are():
    network, data = encoder(), FEW.load()
    method = Supervised(network, LogisticRegression(10, regularization=1e-3))
    method.build((None, *data.image_shape))
    network.trainable = False
    HeadFit(method, data.train, batch_size=50, verbose=0).run()
    images, labels = data.train.arrays()
    alone = LogisticRegression(10, regularization=1e-3)
    alone.fit_features(np.concatenate([method.embed(images[:70]), method.embed(images[70:])]), labels)
    np.testing.assert_allclose(method.head.chain[0].kernel, alone.chain[0].kernel, atol=1e-3)
    assert np.mean(np.argmax(method(images), axis=-1) == labels) > 0.3  # of random features


def test_what_does_not_fit_is_refused_before_the_first_stage_trains(tmp_path):
    with pytest.raises(InputError, match="KNearestNeighbours is fitted to a frozen encoder: set Pretraining.frozen"):
        run(tmp_path, frozen=False)
    with pytest.raises(InputError, match="KNearestNeighbours is fitted at once and needs an encoder that is trained"):
        run(tmp_path, pretraining=None)
    parts = {"encoder": encoder(), "head": LogisticRegression(10)}
    with pytest.raises(InputError, match="METHOD is @Supervised then, not @AdversarialTraining"):
        HeadFit(AdversarialTraining(attack=ATTACK, **parts), DIGITS.load().train)
    with pytest.raises(InputError, match="METHOD is @Supervised then, not one with a penalty"):
        HeadFit(Supervised(**parts, penalty=Tikhonov()), DIGITS.load().train)
    with pytest.raises(InputError, match="METHOD is @Supervised then, not @AdversarialTraining"):
        run(tmp_path, method=functools.partial(AdversarialTraining, attack=ATTACK), dry_run=True)
    with pytest.raises(InputError, match="KNearestNeighbours is fitted at once, without epochs"):
        run(tmp_path, publish_weights="best", dry_run=True)


def test_what_a_fitted_head_does_not_use_is_said_in_one_line(tmp_path, caplog, capsys):
    run(tmp_path, dry_run=True, epochs=7, validation=lambda **_: None, callbacks=(keras.callbacks.Callback(),))
    (record,) = caplog.records
    assert record.getMessage() == (
        "KNearestNeighbours is fitted at once; not used: EPOCHS 7, train.callbacks, train.validation."
    )
    assert "fitted at once" in capsys.readouterr().out and not list(tmp_path.iterdir())
