"""Check which data and parts a method refuses, in which words, and what it accepts as any Keras model does."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust import keras as robust

IMAGES = np.random.default_rng(0).uniform(size=(8, 4, 4, 1)).astype("float32")
LABELS = np.arange(8) % 3
ROWS = np.eye(3, dtype="float32")[LABELS]
THREAT = robust.attacks.ThreatModel(epsilon=0.1)


def encoder(*last):
    return keras.Sequential([keras.Input((4, 4, 1)), *(last or (keras.layers.Flatten(), keras.layers.Dense(5)))])


def method(parts=None, head=None, threat=None, **compiled):
    adversary = robust.methods.Adversary(attack=robust.attacks.FGSM(threat or THREAT))
    model = robust.methods.AdversarialTraining(parts or encoder(), head or keras.layers.Dense(3), adversary=adversary)
    model.compile("sgd", **{"run_eagerly": True, **compiled})
    return model


def fit(model, *data, **keywords):
    return model.fit(*data, batch_size=4, shuffle=False, verbose=0, **keywords).history


def sigmoids():
    return encoder(keras.layers.Flatten(), keras.layers.Dense(3), keras.layers.Activation("sigmoid"))


class Several(keras.Model):
    def call(self, images):
        return {"logits": images[:, 0, 0], "features": images[:, 1, 0]}


def frozen(layer):
    layer.trainable = False
    return layer


def twice(model):
    return keras.Model(model.inputs, model.outputs * 2)


@pytest.mark.parametrize(("data", "message"), stored.cases(__file__, "data", globals())["rows"])
def test_bad_data_is_one_sentence(data, message):
    weights = {"sample_weight": data[2]} if len(data) > 2 else {}
    with pytest.raises(ValueError, match=message) as error:
        fit(method(), *data[:2], **weights)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("data", "message"), stored.cases(__file__, "graphs", globals())["rows"])
def test_in_a_graph_a_refusal_is_the_same_sentence(data, message):
    model = robust.methods.Supervised(encoder(), keras.layers.Dense(3))
    model.compile("sgd")
    with pytest.raises(ValueError, match=message):
        fit(model, *data[:2], sample_weight=data[2] if len(data) > 2 else None)
    for entrance in (model.train_on_batch, model.test_on_batch):
        with pytest.raises(ValueError, match=message):
            entrance(*data)


def test_images_of_unknown_axes_are_refused():
    spec = tf.TensorSpec(None), tf.TensorSpec([None], tf.int32)
    data = tf.data.Dataset.from_generator(lambda: [(IMAGES, LABELS)], output_signature=spec)
    with pytest.raises(ValueError, match="unknown number of axes.*ensure_shape"):
        method(run_eagerly=False).fit(data, verbose=0)


@pytest.mark.parametrize(("keywords", "message"), stored.cases(__file__, "parts", globals())["rows"])
def test_bad_parts_are_one_sentence(keywords, message):
    with pytest.raises(ValueError, match=message):
        fit(method(**keywords), IMAGES, LABELS)


class Gated(keras.Model):
    def __init__(self):
        super().__init__()
        self.out = keras.layers.Dense(3)
        self.gate = keras.layers.Dense(5, activation="sigmoid")

    def call(self, inputs):
        return self.out(inputs * self.gate(inputs))


def test_a_sigmoid_within_a_head_is_no_end_of_it():
    assert np.isfinite(fit(method(head=Gated()), IMAGES, LABELS)["loss"]).all()
    inputs = keras.Input([5])
    functional = keras.Model(inputs, keras.layers.Activation("softmax")(keras.layers.Dense(3)(inputs)))
    with pytest.raises(ValueError, match="remove the softmax"):
        fit(method(head=functional), IMAGES, LABELS)


def test_an_adversary_may_be_something_else():
    model = robust.methods.Supervised(encoder(), keras.layers.Dense(3))
    model.adversary = keras.layers.Dense(2)
    assert model.as_batch((IMAGES, LABELS)).labels.shape == [8]


def test_an_evaluation_without_labels_is_refused():
    with pytest.raises(ValueError, match="needs labels for evaluation"):
        method().evaluate(IMAGES, verbose=0)


def test_bounds_are_those_of_the_threat():
    threat = robust.attacks.ThreatModel(epsilon=8.0, bounds=(0.0, 255.0))
    assert np.isfinite(fit(method(threat=threat), 255 * IMAGES, LABELS)["loss"]).all()


def test_a_batch_of_weight_0_teaches_nothing():
    model = method()
    model.build(IMAGES.shape)
    before = model.get_weights()[1:]  # but the step
    fit(model, IMAGES, LABELS, class_weight=dict.fromkeys(range(3), 0.0))
    for old, new in zip(before, model.get_weights()[1:], strict=True):
        np.testing.assert_array_equal(old, new)


def test_weights_may_stand_in_a_column():
    weights, losses = np.linspace(0.0, 2.0, 8), []
    for given_weights in (weights, weights[:, None]):
        keras.utils.set_random_seed(1)
        losses.append(fit(method(), IMAGES, LABELS, sample_weight=given_weights)["loss"])
    assert losses[0] == losses[1]


def test_metrics_get_one_hot_labels_as_they_are():
    metrics = [keras.metrics.CategoricalAccuracy(), keras.metrics.TopKCategoricalAccuracy(k=2), "accuracy"]
    history = fit(method(metrics=metrics), IMAGES, ROWS, validation_data=(IMAGES, ROWS))
    for prefix in ("", "val_"):
        assert history[f"{prefix}categorical_accuracy"] == history[f"{prefix}accuracy"]
        assert history[f"{prefix}top_k_categorical_accuracy"] >= history[f"{prefix}accuracy"]


@keras.saving.register_keras_serializable(package="tests")
class Unshaped(keras.Model):
    """Says neither how it is built nor what shape it answers with."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(5)

    def call(self, images):
        return self.dense(self.flatten(images))


@pytest.mark.parametrize("loaded", [False, True])
def test_any_encoder_trains_and_is_exported_after_fit(loaded, tmp_path):
    model = robust.methods.Supervised(Unshaped(), keras.layers.Dense(3))
    model.compile("sgd", run_eagerly=True)
    fit(model, IMAGES, LABELS)
    assert model.compute_output_shape((None, 4, 4, 1)) == (None, 3) and len(model.trainable_variables) == 4
    expected = model.propagate(IMAGES, training=False)[1]
    if loaded:
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras")
    model.export(tmp_path / "exported", verbose=False)
    served = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(served.serve(IMAGES), expected, atol=1e-5)


BYTES = 255 * IMAGES
PIXELS = BYTES.astype("uint8")
flip, fog = (lambda: robust.layers.Augment(robust.augment.RandomFlip())), (lambda: robust.layers.Corrupt("fog"))


def summed(images):
    return tf.reduce_sum(images, axis=(1, 2, 3))


turned = robust.augment.RandomFlip(probability=1.0)


def traced(layer, shape):
    function = tf.function(lambda images: layer(images, training=True), autograph=False)
    return function.get_concrete_function(tf.TensorSpec(shape))


@pytest.mark.parametrize(("call", "message"), stored.cases(__file__, "layers", globals())["rows"])
def test_layers_and_corruptions_refuse_what_does_not_fit(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_flip_takes_images_of_any_size():
    flipped = traced(robust.layers.Augment(turned), [None, None, 1])(tf.constant(IMAGES[0]))
    np.testing.assert_array_equal(flipped, IMAGES[0][:, ::-1])


@pytest.mark.parametrize("kind", [robust.attacks.FGSM, robust.attacks.APGDCrossEntropy, robust.attacks.GaussianNoise])
def test_attacks_in_training_refuse_bytes(kind):
    with pytest.raises(ValueError, match="divide bytes by 255"):
        kind(THREAT).perturb(summed, tf.constant(BYTES), tf.constant([0, 1]))


def test_an_attack_in_training_takes_several_views():
    attack = robust.attacks.PGD(THREAT, steps=1)
    attack.perturb(lambda views: summed(sum(views)), (tf.constant(IMAGES),) * 2, tf.constant([0, 1]))


def test_callbacks_refuse_before_an_epoch_is_trained(tmp_path):
    attack = robust.attacks.FGSM(THREAT)
    with pytest.raises(ValueError, match="divide bytes by 255"):
        robust.callbacks.RobustAccuracy(255 * IMAGES, LABELS, attack=attack)
    watch = robust.callbacks.RobustAccuracy(IMAGES, LABELS + 1, attack=attack)
    model = method()
    model.build(IMAGES.shape)
    with pytest.raises(ValueError, match="label 3, but the model has 3 classes"):
        fit(model, IMAGES, LABELS, callbacks=[watch])
    assert int(model.step) == 0
    with pytest.raises(ValueError, match="the best 'val_loss' is the lowest"):
        robust.callbacks.BestWeights(tmp_path, monitor="val_loss")
    with pytest.raises(ValueError, match="attack is the class FGSM"):
        robust.callbacks.RobustAccuracy(IMAGES, LABELS, attack=robust.attacks.FGSM)
    binary = encoder(keras.layers.Flatten(), keras.layers.Dense(1))
    binary.compile("sgd", "binary_crossentropy")
    with pytest.raises(ValueError, match="k >= 2.*.0, z. in place of a logit z"):
        binary.fit(
            IMAGES, LABELS, callbacks=[robust.callbacks.RobustAccuracy(IMAGES, LABELS, attack=attack)], verbose=0
        )


def test_a_numpy_radius_is_a_number():
    assert type(robust.attacks.ThreatModel(epsilon=np.float32(0.5)).epsilon) is float
    with pytest.raises(ValueError, match="1.000001.*np.clip"):
        robust.attacks.run_attack(
            robust.attacks.FGSM(THREAT), lambda images: images, np.full((1, 2), 1 + 1e-6, "float32"), [0]
        )
