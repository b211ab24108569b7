"""The ensemble of exports: its outputs are the mean of the probabilities, and what cannot be joined is named."""

import ensemble
import numpy as np
import tensorflow as tf

from tfrobust.serving.export.saved_model import PREDICT

IMAGES = np.random.default_rng(0).uniform(size=(3, 2, 2, 1)).astype("float32")


def export(folder, seed, classes=4):
    """Write a linear model as version 1 of a folder; return its probabilities of the images."""
    kernel = np.random.default_rng(seed).normal(size=(4, classes)).astype("float32")
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 2, 1], tf.float32, name="images")])
    def predict(images):
        logits = tf.reshape(images, [-1, 4]) @ kernel
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    tf.saved_model.save(module, str(folder / "1"), signatures={PREDICT: predict})
    exponentials = np.exp(IMAGES.reshape(3, 4) @ kernel)
    return exponentials / exponentials.sum(1, keepdims=True)


def test_an_ensemble_has_the_mean_of_the_probabilities(tmp_path, capsys):
    folders = [tmp_path / name for name in ("first", "second", "third", "other")]
    expected = np.mean([export(folder, seed) for seed, folder in enumerate(folders[:3])], axis=0)
    export(folders[3], 3, classes=5)
    (tmp_path / "empty").mkdir()

    def main(*members):
        arguments = [*map(str, members), f"--output={tmp_path / 'joined'}"]
        return ensemble.failures.main(ensemble.parser(), ensemble.run, arguments)

    for members, message in (
        (folders[:1], "at least two exports, got 1"),
        ([folders[0], folders[3]], "other takes other images or has other classes than"),
        ([folders[0], tmp_path / "empty"], "empty has no version of an export"),
    ):
        assert main(*members) == 2 and message in capsys.readouterr().err and not (tmp_path / "joined").exists()
    assert main(*folders[:3]) == 0 and "3 members: " in capsys.readouterr().out
    outputs = tf.saved_model.load(str(tmp_path / "joined")).signatures[PREDICT](images=tf.constant(IMAGES))
    np.testing.assert_allclose(outputs["probabilities"], expected, rtol=1e-5)
    np.testing.assert_allclose(outputs["logits"], np.log(expected), rtol=1e-5)
