"""Train in an ordinary `fit` with methods, attacks, callbacks, optimizers and schedules of the facade."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf

from conformance import facade
from conformance.facade import compiled, copies, stream
from tfrobust import keras as robust

# ------------------------------------------------------------------------------------------------------- methods

# Methods that need more of an encoder than a plain Keras model has, and what they say of one.
NEEDS = stored.table(globals(), "needs")
METHODS = [
    pytest.param(name, marks=[pytest.mark.rest] if name in facade.OF_CLIPS else []) for name in facade.names("method")
]
# One of each family; tests/methods trains, traces and saves every method.
QUICK = ("AdversarialTraining", "Mixup", "SimCLR", "SupervisedContrastive")


@pytest.mark.parametrize(
    "name, policy",
    [
        ("AdversarialTraining", "float32"),
        ("SupervisedContrastive", "mixed_bfloat16"),
        *(pytest.param(*case.values, "mixed_float16", marks=case.marks) for case in METHODS),
    ],
    indirect=["policy"],
)
def test_a_method_trains_on_a_stream_and_is_cloned(name, policy):
    images, labels = facade.data_of(name)
    method = facade.instance(name)
    method.compile("adam", metrics=["accuracy"], run_eagerly=True)
    data = stream(images, labels, batch=12)
    history = method.fit(data, validation_data=data, verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values()), history
    assert {"loss", "val_loss", "val_accuracy", *method.all_terms} <= set(history)
    assert int(method.step) == getattr(method, "replays", 1)
    assert {str(variable.dtype) for variable in method.trainable_variables} == {"float32"}
    expected = method(images)
    assert expected.dtype == np.float32
    clone = keras.models.clone_model(method)
    clone.set_weights(method.get_weights())
    assert type(clone) is type(method)
    np.testing.assert_array_equal(clone(images), expected)


@pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)
def test_a_method_in_float16_is_saved_and_evaluated(policy, tmp_path):
    images, labels = facade.data()
    method = facade.instance("AdversarialTraining")
    method.compile("adam", metrics=["accuracy"])
    method.fit(images, labels, verbose=0)
    again, _ = copies(method, tmp_path)
    np.testing.assert_array_equal(again.predict(images, verbose=0), method.predict(images, verbose=0))
    assert again.evaluate(images, labels, verbose=0) == method.evaluate(images, labels, verbose=0)


@pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)
@pytest.mark.parametrize("name", ["BYOL", "DINO", "PuzzleMix"])
def test_a_method_trains_in_a_graph_that_skips_steps_of_infinite_gradients(name, policy):
    """In float16 Keras scales the loss and puts the update under a condition; these have copies and loops in it."""
    images, labels = facade.data()
    method = facade.instance(name)
    method.compile("adam", metrics=["accuracy"])
    history = method.fit(images, labels, verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values()), history
    assert int(method.step) == 1


def encoder_of(kind, shape=facade.SHAPE):
    chain = [keras.layers.Flatten(), keras.layers.Dense(5, "relu")]
    if kind == "functional":
        inputs = keras.Input(shape)
        return keras.Model(inputs, chain[1](chain[0](inputs)))
    return PlainEncoder()


@keras.saving.register_keras_serializable(package="tests")
class PlainEncoder(keras.Model):
    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(5, "relu")

    def build(self, input_shape):
        self.dense.build((None, int(np.prod(input_shape[1:]))))

    def call(self, images):
        return self.dense(self.flatten(images))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 5)


@pytest.mark.parametrize(
    "name, kind",
    [
        *((name, "subclassed") for name in QUICK),
        *(pytest.param(*case.values, "functional", marks=case.marks) for case in METHODS),
    ],
)
def test_a_method_takes_a_plain_keras_encoder_or_says_what_it_lacks(name, kind, tmp_path):
    images, labels = facade.data_of(name)
    cls, row = facade.CLASSES_OFFERED[name], facade.instance(name)
    arguments = {
        key: value for key, value in row.get_config().items() if key not in ("encoder", "head", "name", "dtype")
    }
    arguments = {key: getattr(row, key) for key in arguments if hasattr(row, key)}
    parts = encoder_of(kind, images.shape[1:]), keras.layers.Dense(facade.CLASSES)
    if name in NEEDS:
        with pytest.raises(ValueError, match=NEEDS[name]):
            cls(*parts, **arguments).build((None, *images.shape[1:]))
        return
    method = cls(*parts, **arguments)
    method.compile("adam", run_eagerly=True)
    method.fit(images, labels, verbose=0)
    if name in QUICK:
        robust.save_model(method, tmp_path / "model.keras")
        np.testing.assert_array_equal(robust.load_model(tmp_path / "model.keras")(images), method(images))


def test_a_method_is_a_layer_of_a_larger_model(tmp_path):
    images, labels = facade.data()
    inner = facade.instance("TRADES")
    inputs = keras.Input(facade.SHAPE)
    model = keras.Model(inputs, keras.layers.Softmax()(inner(inputs)))
    compiled(model, keras.losses.SparseCategoricalCrossentropy())
    model.fit(stream(images, labels), verbose=0)
    for copy in copies(model, tmp_path):
        np.testing.assert_array_equal(copy(images), model(images))


# ------------------------------------------------------------------------------------------------------- attacks

# What judges only: it raises no objective, so it makes no adversaries for training.
JUDGES = tuple(stored.table(globals(), "judges"))


@pytest.mark.parametrize(
    "name, policy",
    [("Ensemble", "float32"), ("APGDTargeted", "mixed_float16"), ("FAB", "mixed_float16"), ("Square", "mixed_float16")],
    indirect=["policy"],
)
def test_an_attack_watches_a_fit(name, policy):
    """The callback finds what `run_attack` does, for a functional model in float32 and a subclassed one in 16 bits."""
    images, labels = facade.data()
    attack = facade.instance(name)
    model = compiled(facade.plain("functional" if policy == "float32" else "subclassed"), run_eagerly=True)
    watch = robust.callbacks.RobustAccuracy(stream(images, labels), attack=attack, seed=5)
    history = model.fit(images, labels, verbose=0, callbacks=[watch]).history
    result = robust.attacks.run_attack(attack, model, images, labels, seed=5)
    inside = result.distance <= attack.threat.epsilon * (1 + 1e-5)
    assert history["val_robust_accuracy"] == [pytest.approx(np.mean(~(result.success & inside)))]
    assert history["val_robust_accuracy"] <= history["val_clean_accuracy"]


@pytest.mark.parametrize("name", facade.names("attack"))
def test_an_attack_makes_the_adversaries_of_a_training_or_says_it_only_judges(name):
    images, labels = facade.data()
    method = robust.methods.AdversarialTraining(
        facade.small_cnn(),
        keras.layers.Dense(facade.CLASSES),
        adversary=robust.methods.Adversary(attack=facade.instance(name)),
    )
    method.compile("adam", run_eagerly=True)
    if name in JUDGES:
        with pytest.raises(NotImplementedError, match="train"):
            method.fit(images, labels, verbose=0)
        return
    history = method.fit(images, labels, verbose=0).history
    assert np.isfinite(history["ce_adv"][0])


def test_what_only_judges_still_watches_a_method():
    images, labels = facade.data()
    method = facade.instance("Supervised")
    method.compile("adam", run_eagerly=True)
    watch = robust.callbacks.RobustAccuracy(images, labels, attack=robust.attacks.Square(facade.THREAT, steps=3))
    history = method.fit(images, labels, verbose=0, callbacks=[watch]).history
    assert "val_robust_accuracy" in history and "val_r_div" not in history


# ----------------------------------------------------------------------------------------------------- callbacks


@pytest.mark.parametrize("policy", ["mixed_float16"], indirect=True)
@pytest.mark.parametrize("name", facade.names("callback"))
def test_a_callback_works_in_a_plain_fit(name, policy, tmp_path):
    images, labels = facade.data()
    model = compiled(facade.plain("subclassed"), metrics=["accuracy"], run_eagerly=True)
    callback, data = facade.CALLBACKS[name](tmp_path), stream(images, labels)
    history = model.fit(data, validation_data=data, epochs=2, verbose=0, callbacks=[callback]).history
    if name == "RobustAccuracy":
        assert len(history["val_robust_accuracy"]) == 2
    if hasattr(callback, "restore"):
        assert callback.restore() is not None
        assert np.all(np.isfinite(model.predict(images, verbose=0)))


def test_callbacks_of_keras_follow_the_robust_accuracy(tmp_path):
    images, labels = facade.data()
    model = compiled(facade.plain(), run_eagerly=True)
    chain = [
        facade.CALLBACKS["RobustAccuracy"](None),
        keras.callbacks.ModelCheckpoint(
            tmp_path / "best.keras", monitor="val_robust_accuracy", mode="max", save_best_only=True
        ),
        keras.callbacks.EarlyStopping(monitor="val_robust_accuracy", mode="max", patience=1, min_delta=1.0),
    ]
    history = model.fit(images, labels, epochs=5, verbose=0, callbacks=chain).history
    assert len(history["val_robust_accuracy"]) == 2 and (tmp_path / "best.keras").is_file()


def test_a_method_resumes_from_the_backup_of_keras(tmp_path):
    """Also before its first step, as a functional model does, where its encoder knows the shape of the images."""
    images, labels = facade.data()

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def losses(*callbacks):
        keras.utils.set_random_seed(1)
        method = robust.methods.Supervised(encoder_of("functional"), keras.layers.Dense(facade.CLASSES))
        method.compile("adam", run_eagerly=True)
        return method.fit(images, labels, epochs=3, shuffle=False, verbose=0, callbacks=callbacks).history["loss"]

    with pytest.raises(KeyboardInterrupt):
        losses(keras.callbacks.BackupAndRestore(tmp_path), Stop())
    assert losses(keras.callbacks.BackupAndRestore(tmp_path)) == losses()[2:]


def test_robust_accuracy_watches_the_logits_of_a_model_with_several_outputs():
    images, labels = facade.data()
    inputs = keras.Input(facade.SHAPE)
    features = keras.layers.Flatten()(inputs)
    logits, projection = keras.layers.Dense(facade.CLASSES), robust.layers.LinearProjection(4)
    model = keras.Model(inputs, {"logits": logits(features), "projection": projection(features)})
    losses = {
        "logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        "projection": robust.losses.SupervisedContrastiveLoss(),
    }
    model.compile("adam", losses, loss_weights={"logits": 1.0, "projection": 0.1}, metrics={"logits": ["accuracy"]})
    watch = facade.CALLBACKS["RobustAccuracy"](None)
    history = model.fit(
        images, {"logits": labels, "projection": labels}, batch_size=12, verbose=0, callbacks=[watch]
    ).history
    alone = keras.Model(inputs, model.output["logits"])
    clean = np.mean(alone.predict(images, verbose=0).argmax(-1) == labels)
    assert history["val_clean_accuracy"] == [pytest.approx(clean)]
    nameless = compiled(keras.Model(inputs, [*model.output.values()]), [*losses.values()])
    with pytest.raises(ValueError, match="2 outputs without names"):
        nameless.fit(images, [labels, labels], verbose=0, callbacks=[facade.CALLBACKS["RobustAccuracy"](None)])


# --------------------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize("name", facade.names("schedule"))
def test_a_schedule_drives_an_optimizer_and_comes_back_with_it(name, tmp_path):
    images, labels = facade.data()
    schedule = facade.instance(name)
    model = compiled(facade.plain(), optimizer=keras.optimizers.SGD(schedule), run_eagerly=True)
    model.fit(stream(images, labels), epochs=4, verbose=0)
    again, _ = copies(model, tmp_path)
    for trained in (model, again):
        assert float(trained.optimizer.learning_rate) == pytest.approx(float(schedule(tf.constant(12))))
