"""Validation under attack, the best weights, averaged weights: against closed forms and plain NumPy."""

import keras
import numpy as np
import pytest
import stored

from oracles import geometry as oracle
from oracles import linear_model
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.callbacks import AveragedWeights, BestWeights, OverfittingWarning, RobustAccuracy
from tfrobust.training.callbacks import robust_accuracy

EPSILON = 0.05


class Linear(keras.Model):
    """Two classes, logits = W x; its embedding are the pixels."""

    def __init__(self, kernel):
        super().__init__()
        self.dense = keras.layers.Dense(2, use_bias=False)
        self.dense.build((None, kernel.shape[0]))
        self.dense.kernel.assign(kernel)
        self.built = True

    def call(self, images, training=None):
        return self.dense(keras.ops.reshape(images, (-1, 4)))

    def embed(self, images):
        return keras.ops.reshape(images, (-1, 4))


@pytest.fixture
def linear():
    """A linear model, images far from 0 and 1, and labels that are mostly right."""
    draws = np.random.default_rng(0)
    kernel = draws.normal(size=(4, 2)).astype(np.float32)
    images = draws.uniform(0.3, 0.7, [23, 2, 2, 1]).astype(np.float32)
    images -= (images.reshape(-1, 4) @ (kernel[:, 1] - kernel[:, 0])).mean() / 8  # both classes appear
    images = images.clip(0.1, 0.9)
    logits = images.reshape(-1, 4) @ kernel
    labels = logits.argmax(-1).astype(np.int32)
    labels[:3] = 1 - labels[:3]
    return Linear(kernel), kernel, images, labels


def watch(model, images, labels, *, epoch=0, **keywords) -> dict:
    attack = PGD(ThreatModel(epsilon=EPSILON), steps=10)
    callback = RobustAccuracy(images, labels, attack=attack, **keywords)
    callback.set_model(model)
    callback.on_train_begin()
    logs = {}
    callback.on_epoch_end(epoch, logs)
    return logs


def test_one_hot_labels_are_ids(linear):
    model, _, images, labels = linear
    assert watch(model, images, np.eye(2)[labels]) == watch(model, images, labels)
    with pytest.raises(ValueError, match="one-hot"):
        RobustAccuracy(images, np.full((len(images), 2), 0.5), attack=PGD(ThreatModel(epsilon=0.2), steps=10))


@pytest.mark.parametrize("batch_size", [4, 128])
def test_robust_accuracy_of_a_linear_model_is_its_margin_against_epsilon(linear, batch_size):
    model, kernel, images, labels = linear
    pixels = images.reshape(-1, 4)
    gap = (kernel[:, labels] - kernel[:, 1 - labels]).T  # [n, 4]: of the own logit minus the other
    margin, reach = (gap * pixels).sum(-1), EPSILON * np.abs(gap).sum(-1)
    logs = watch(model, images, labels, batch_size=batch_size)
    assert logs["val_clean_accuracy"] == pytest.approx(np.mean(margin > 0))
    assert logs["val_robust_accuracy"] == pytest.approx(np.mean(margin > reach))
    assert 0 < logs["val_robust_accuracy"] < logs["val_clean_accuracy"] < 1
    if batch_size >= len(images):  # divergences are taken batch by batch
        attacked = pixels - EPSILON * np.sign(gap)
        assert logs["val_r_div"] == pytest.approx(oracle.divergences(pixels, attacked, labels)[0], rel=1e-3)


@pytest.mark.parametrize("batch_size", [4, 23, 128])
def test_batches_of_one_size_give_every_row_once(linear, batch_size):
    _, _, images, labels = linear
    rows, sizes = np.arange(len(images)), []
    callback = RobustAccuracy(images, labels, attack=PGD(ThreatModel(epsilon=0.2)), batch_size=batch_size)
    outputs = callback._in_batches(lambda part: sizes.append(len(part)) or part, rows)
    np.testing.assert_array_equal(outputs, rows)
    assert len(set(sizes)) == 1


def test_sigmoids_are_probabilities_before_and_after_training(linear):
    _, kernel, images, labels = linear
    sigmoids = keras.layers.Dense(2, activation="sigmoid")
    model = keras.Sequential([keras.Input((2, 2, 1)), keras.layers.Flatten(), sigmoids])
    for scale in (0.01, 100.0):
        weights = scale * (kernel - kernel.mean(axis=1, keepdims=True))
        sigmoids.set_weights([weights, np.array([0.0, 0.1], np.float32)])
        assert 0 <= watch(model, images, labels, from_logits=False)["val_robust_accuracy"] <= 1
    with pytest.raises(ValueError, match="from_logits=False"):
        watch(model, images, labels)


def test_robust_accuracy_looks_every_so_many_epochs(linear):
    model, _, images, labels = linear
    assert [bool(watch(model, images, labels, every=3, epoch=epoch)) for epoch in range(6)] == [0, 0, 1, 0, 0, 1]
    with pytest.raises(ValueError, match="every is 0; it must be an integer >= 1"):
        RobustAccuracy(images, labels, every=0, attack=PGD(ThreatModel(epsilon=0.2), steps=10))


def test_a_long_attack_says_how_far_it_is(linear, capsys, monkeypatch):
    model, _, images, labels = linear
    watch(model, images, labels)
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(robust_accuracy, "_SILENCE", 0.0)
    watch(model, images, labels, batch_size=8)
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(
        line.startswith("RobustAccuracy, pgd: ") and " of 23 examples left  " in line for line in lines
    )


def test_best_weights_are_kept_on_disk_and_put_back(linear, tmp_path):
    model, offset = linear[0], -8.0  # a log may lie anywhere

    def callback():
        best_weights = BestWeights(tmp_path / "best")
        best_weights.set_model(model)
        return best_weights

    best = callback()
    assert best.restore() is None
    values = [0.2, None, 0.5, float("nan"), 0.5, 0.4]
    for epoch, value in enumerate(values):
        model.dense.kernel.assign(np.full([4, 2], epoch + 1.0))
        best.on_epoch_end(epoch, {} if value is None else {"val_robust_accuracy": offset + value})
    assert (best.best, best.best_epoch) == (offset + 0.5, 3)
    assert len(list((tmp_path / "best").iterdir())) == 1
    state = callback().restore()  # as another process would
    assert (state["step"], state["value"]) == (3, offset + 0.5)
    np.testing.assert_array_equal(model.dense.kernel.numpy(), np.full([4, 2], 3.0))


def test_the_best_weights_of_another_training_are_not_put_back(linear, tmp_path):
    model = linear[0]
    earlier = BestWeights(tmp_path, monitor="val_accuracy")
    earlier.set_model(model)
    earlier.on_epoch_end(0, {"val_accuracy": 0.5})
    other = BestWeights(tmp_path, monitor="val_auc")
    unknown = BestWeights(tmp_path, monitor="val_accuracy")
    for best, logs in ((other, {}), (unknown, {"val_accuracy": float("nan")})):
        model.dense.kernel.assign(np.full([4, 2], 7.0))
        best.set_model(model)
        best.on_epoch_begin(0)
        best.on_epoch_end(0, logs)
        assert best.restore() is None
        np.testing.assert_array_equal(model.dense.kernel.numpy(), np.full([4, 2], 7.0))


def test_best_weights_of_a_training_that_goes_on_and_of_a_new_one(linear, tmp_path):
    model = linear[0]
    for first, epochs, expected in ((0, [0.3, 0.5], 2), (2, [0.4, 0.45], 2), (2, [0.6], 3), (0, [0.2], 1)):
        best = BestWeights(tmp_path)
        best.set_model(model)
        for epoch, value in enumerate(epochs, first):
            best.on_epoch_begin(epoch)
            best.on_epoch_end(epoch, {"val_robust_accuracy": value})
        assert best.restore()["step"] == expected


@pytest.mark.parametrize("kind", ["best", "ema", "swa"])
def test_a_second_model_begins_anew(kind, tmp_path):
    callback = BestWeights(tmp_path) if kind == "best" else AveragedWeights(kind=kind, decay=0.5)
    for value, accuracy in ((1.0, 0.9), (2.0, 0.4)):
        model = Linear(np.full([4, 2], value, np.float32))
        for epoch in range(2):  # a second `fit` of the same model goes on
            callback.set_model(model)
            callback.on_epoch_begin(epoch)
            callback.on_train_batch_begin(0)
            callback.on_train_batch_end(0)
            callback.on_epoch_end(epoch, {"val_robust_accuracy": accuracy - epoch / 10})
        callback.restore()
        np.testing.assert_array_equal(model.dense.kernel.numpy(), np.full([4, 2], value))


@pytest.mark.parametrize("kind, start_epoch, expected", stored.rows(globals(), "averaged_weights_against_their"))
def test_averaged_weights_against_their_recursion(kind, start_epoch, expected):
    model = Linear(np.zeros([4, 2], np.float32))
    average = AveragedWeights(kind=kind, decay=0.75, start_epoch=start_epoch)
    average.set_model(model)
    step = 0
    for epoch in range(3):
        average.on_epoch_begin(epoch)
        for batch in range(2):
            step += 1
            model.dense.kernel.assign(np.full([4, 2], float(step)))
            average.on_train_batch_end(batch)
        average.on_epoch_end(epoch)
    np.testing.assert_array_equal(model.dense.kernel.numpy(), np.full([4, 2], 6.0))
    assert average.restore() == {"kind": kind}
    np.testing.assert_allclose(model.dense.kernel.numpy(), np.full([4, 2], expected()), rtol=1e-6)


def _ema(value: float, weights: list[float]) -> float:
    for weight in weights:
        value = 0.75 * value + 0.25 * weight
    return value


def test_averages_count_updates_and_refuse_steps_that_they_do_not_see():
    images, labels = np.linspace(0, 1, 8, dtype="float32")[:, None], np.arange(8) % 2
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def fit(average, **compiled):
        model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), loss, **compiled)
        model.fit(images, labels, batch_size=2, epochs=2, verbose=0, callbacks=[average])

    for average in (AveragedWeights(decay=0.5), AveragedWeights(decay=0.5)):  # the second after earlier updates
        fit(average, run_eagerly=True)
        assert int(average.count.numpy()) == 4
    with pytest.raises(ValueError, match="steps_per_execution=2 shows one of 2: compile with steps_per_execution=1"):
        fit(AveragedWeights(decay=0.5), steps_per_execution=2)
    fit(AveragedWeights(kind="swa"), steps_per_execution=2)


@pytest.mark.parametrize("keywords, expected", [({"kind": "swa"}, 25.0), ({"ramp": True}, 0.1 * 10.0 + 0.9 * 20.0)])
def test_the_average_of_a_second_training_begins_at_its_start_epoch(keywords, expected):
    model, average = Linear(np.zeros([4, 2], np.float32)), AveragedWeights(start_epoch=2, **keywords)
    for scale in (1.0, 10.0):
        average.set_model(model)
        for epoch in range(3 if "kind" in keywords else 2):
            average.on_epoch_begin(epoch)
            average.on_train_batch_begin(0)
            model.dense.kernel.assign(np.full([4, 2], scale * (epoch + 1)))
            average.on_train_batch_end(0)
            average.on_epoch_end(epoch)
    np.testing.assert_allclose(average.averages[0].numpy(), np.full([4, 2], expected), rtol=1e-6)


def test_the_ramp_starts_with_the_weights_of_the_first_steps():
    model = Linear(np.zeros([4, 2], np.float32))
    average = AveragedWeights(decay=0.3, ramp=True)
    average.set_model(model)
    average.on_epoch_begin(0)
    expected = 0.0
    for step in range(4):
        model.dense.kernel.assign(np.full([4, 2], step + 1.0))
        average.on_train_batch_end(step)
        decay = min(0.3, (1 + step) / (10 + step))  # 0.1, 0.1818, 0.25, 0.3
        expected = decay * expected + (1 - decay) * (step + 1.0)
        np.testing.assert_allclose(average.averages[0].numpy(), np.full([4, 2], expected), rtol=1e-6)
    assert int(average.count) == 4  # in the checkpoint, with the averages


def test_an_average_is_not_restored_before_training():
    with pytest.raises(ValueError, match="no average yet: pass the callback to fit"):
        AveragedWeights().restore()


def test_the_average_starts_from_weights_that_another_callback_restores():
    model, average = Linear(np.zeros([4, 2], np.float32)), AveragedWeights(decay=0.5)
    average.set_model(model)
    average.on_epoch_begin(0)
    for step in (4.0, 8.0, 10.0):  # restored when training begins, and after each of two steps
        model.dense.kernel.assign(np.full([4, 2], step))
        if step > 4:
            average.on_train_batch_end(0)
        average.on_train_batch_begin(0)
    np.testing.assert_array_equal(average.averages[0].numpy(), np.full([4, 2], 8.0))


def test_copied_statistics_are_those_of_the_weights():
    model = keras.Sequential([keras.Input((3,)), keras.layers.BatchNormalization()])
    for statistics in ("averaged", "copied"):
        for variable in model.variables:
            variable.assign(np.zeros(3))
        average = AveragedWeights(decay=0.75, statistics=statistics)
        average.set_model(model)
        average.on_epoch_begin(0)
        for variable in model.variables:
            variable.assign(np.ones(3))
        average.on_train_batch_end(0)
        averages = {
            weight.name: float(averaged.numpy()[0])
            for weight, averaged in zip(model.variables, average.averages, strict=True)
        }
        moving = 1.0 if statistics == "copied" else 0.25
        assert averages == {"gamma": 0.25, "beta": 0.25, "moving_mean": moving, "moving_variance": moving}


class Shielded(Linear):
    """It withstands the fast gradient sign method alone."""

    def call(self, images, training=None):
        return super().call(linear_model.shielded(images))


@pytest.mark.parametrize("kind", [Linear, Shielded])
def test_overfitting_to_a_single_step_is_warned_of_once(linear, kind, caplog):
    _, kernel, images, labels = linear
    images = np.round(images * 64) / np.float32(64)
    watcher = OverfittingWarning(images, labels, attack=PGD(ThreatModel(epsilon=0.2), steps=10))
    watcher.set_model(kind(kernel))
    watcher.on_train_begin()
    logs = [{}, {}]
    for epoch in range(2):
        watcher.on_epoch_end(epoch, logs[epoch])
    flawed = kind is Shielded
    warnings = [record.getMessage() for record in caplog.records]
    assert watcher.warned == flawed and len(warnings) == flawed
    assert logs[0]["val_gradient_cosine"] == pytest.approx(-1.0 if flawed else 1.0, abs=1e-4)
    assert (logs[0]["val_fgsm_accuracy"] - logs[0]["val_robust_accuracy"] > 0.2) == flawed
    if flawed:
        assert warnings[0].startswith("catastrophic overfitting in epoch 1: FGSM leaves") and "GradAlign" in warnings[0]


@pytest.mark.rest
def test_a_fall_of_the_accuracy_under_attack_is_warned_of(linear, caplog):
    model, kernel, images, labels = linear
    watcher = OverfittingWarning(images, labels, attack=PGD(ThreatModel(epsilon=EPSILON), steps=10))
    watcher.set_model(model)
    watcher.on_train_begin()
    watcher.on_epoch_end(0, {})
    assert not watcher.warned and watcher.best > 0.3
    model.dense.kernel.assign(-kernel)
    watcher.on_epoch_end(1, {})
    assert watcher.warned and f"the accuracy under attack was {watcher.best:.1%} before" in caplog.text
