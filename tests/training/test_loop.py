"""The loop: equal to `fit`, resumable at any step, honest about what goes wrong. Killed processes: tests/faults."""

import csv
import os
import pathlib
import signal

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf
from faults import small_run
from faults.small_run import EPOCHS, LAST, STEPS_PER_EPOCH, make_loop, outcome

from conformance import methods as battery
from tfrobust.attacks.shared.threat import ThreatModel
from tfrobust.errors import Failure, InputError, StopRequested
from tfrobust.keras.methods import AdversarialTraining, FreeAdversarialTraining, Supervised
from tfrobust.keras.schedules import LinearRamp
from tfrobust.models.heads.linear import LinearHead
from tfrobust.training import cluster
from tfrobust.training.loop import Loop, TrainingDiverged, _table, deferred_signals, history_columns


class Stop(keras.callbacks.Callback):
    """Sends this process a real SIGTERM in the middle of some global steps, counted from 1."""

    def __init__(self, *steps):
        super().__init__()
        self.steps = steps

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.step) + 1 in self.steps:
            os.kill(os.getpid(), signal.SIGTERM)


class Recorder(keras.callbacks.Callback):
    """A callback that keeps what it is called with."""

    def __init__(self):
        super().__init__()
        self.batches, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((batch, dict(logs)))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append((epoch, dict(logs)))
        logs["val_added"] = 10.0 + epoch


def test_the_loop_is_fit_on_the_same_batches(tmp_path):
    tf.config.experimental.enable_op_determinism()
    loop = make_loop(tmp_path, checkpoint_seconds=1e9)
    history = loop.run()
    twin = battery.build("ascl")
    fitted = twin.fit(
        small_run.batches(0).take(LAST), epochs=EPOCHS, steps_per_epoch=STEPS_PER_EPOCH, shuffle=False, verbose=0
    ).history
    assert int(twin.step) == LAST
    for weight, twin_weight in zip(battery.weights(loop.method), battery.weights(twin), strict=True):
        np.testing.assert_array_equal(weight, twin_weight)
    assert {"loss", "accuracy", *twin.terms, *twin.observations} <= set(fitted)
    assert {name: history[name] for name in fitted} == fitted
    assert set(history) == {*fitted, "epoch", "learning_rate"}


def falling():
    return keras.optimizers.SGD(keras.optimizers.schedules.PolynomialDecay(0.1, LAST, end_learning_rate=0.0))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run that ended, its loop, what it returned, its callback, and how often the step was traced."""
    folder, recorder, traces = tmp_path_factory.mktemp("finished"), Recorder(), []
    loop = make_loop(folder, "supervised", [recorder], falling(), history_file=str(folder / "history.csv"))
    terms = loop.method.loss_terms
    loop.method.loss_terms = lambda *arguments: traces.append(1) or terms(*arguments)
    return folder, loop, loop.run(), recorder, len(traces)


def test_a_loop_traces_its_step_once_and_writes_its_history(finished):
    assert finished[-1] == 1
    with open(finished[1].history_file, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2", "3"] and set(rows[0]) == set(finished[2])
    assert [float(row["ce"]) for row in rows] == finished[2]["ce"]


def test_the_history_has_what_callbacks_add_and_the_learning_rate(finished):
    _, loop, history, recorder, _ = finished
    assert history["epoch"] == [1, 2, 3] and history["val_added"] == [10.0, 11.0, 12.0]
    # The rate of the step that comes next.
    np.testing.assert_allclose(history["learning_rate"], [0.1 * (1 - done / LAST) for done in (4, 8, 12)], atol=1e-7)
    assert [batch for batch, _ in recorder.batches] == [0, 1, 2, 3] * EPOCHS
    assert [epoch for epoch, _ in recorder.epochs] == [0, 1, 2]
    assert recorder.epochs[0][1]["loss"] == history["loss"][0] == recorder.batches[3][1]["loss"]
    assert loop.seconds > 0


def test_a_history_has_a_row_per_epoch_and_a_hole_where_a_log_is_missing(tmp_path):
    assert _table(history_columns([{"epoch": 1, "loss": 2.5}, {"epoch": 2, "loss": 2.0, "val": 0.5}])) == (
        "epoch,loss,val\n1,2.5,\n2,2.0,0.5\n"
    )
    rows = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0, "val": 0.5}]
    assert history_columns(rows) == {"epoch": [1, 2], "loss": [2.0, 1.0], "val": [None, 0.5]}
    assert history_columns([]) == {}


def test_a_finished_run_trains_no_step_more(finished, capsys):
    nothing = lambda step: small_run.batches(step).take(0)  # noqa: E731
    again = make_loop(finished[0], "supervised", [Recorder()], falling(), finished_only=True, batches=nothing)
    assert again.run()["epoch"] == [1, 2, 3] and int(again.method.step) == LAST
    assert f"resuming at step {LAST} of {LAST}" in capsys.readouterr().out


def test_other_callbacks_than_before_are_refused(finished):
    with pytest.raises(InputError, match="callbacks Recorder; now they are Recorder, AveragedWeights"):
        make_loop(finished[0], "supervised", [Recorder(), small_run.AveragedWeights()], falling()).run()


def test_stopped_at_any_step_the_rest_is_the_same_to_the_bit(tmp_path):
    """At the first step, in mid-epoch, at an epoch's end; metrics, callbacks, averages with it."""
    tf.config.experimental.enable_op_determinism()

    def resumable(folder, *steps):
        # Without validation under attack, which the killed runs in tests/faults have. No checkpoint is ever due:
        # the one that is resumed from is the one that the signal brought about.
        callbacks = [*small_run.all_callbacks(folder)[1:], Stop(*steps)]
        return make_loop(folder, "supervised", callbacks, checkpoint_seconds=1e9)

    uninterrupted = resumable(tmp_path / "whole")
    expected = outcome(uninterrupted, uninterrupted.run())
    for step in (1, 6, 8):
        with pytest.raises(StopRequested, match=f"SIGTERM after step {step} of {LAST}"):
            resumable(tmp_path / "parts", step).run()
    last = resumable(tmp_path / "parts")
    assert outcome(last, last.run()) == expected


@pytest.mark.parametrize(("row", "variable"), [("moco_v3", None), ("dino", "center"), ("swav_queue", "queue")])
def test_momentum_networks_centers_and_queues_survive_a_stop(tmp_path, row, variable):
    tf.config.experimental.enable_op_determinism()
    uninterrupted = make_loop(tmp_path / "whole", row, checkpoint_seconds=1e9)
    expected = outcome(uninterrupted, uninterrupted.run())
    with pytest.raises(StopRequested, match="SIGTERM after step 6"):
        make_loop(tmp_path / "parts", row, [Stop(6)], checkpoint_seconds=1e9).run()
    last = make_loop(tmp_path / "parts", row, [Stop()], checkpoint_seconds=1e9)
    assert outcome(last, last.run()) == expected
    assert variable is None or np.all(np.any(getattr(last.method, variable).numpy() != 0, axis=-1))


def test_carried_perturbations_and_the_ramp_of_an_average_survive_a_stop(tmp_path):
    """Two replays per batch: the loop counts batches, the method and the average's ramp count what they always do."""
    tf.config.experimental.enable_op_determinism()

    def resumable(folder, *steps):
        keras.utils.set_random_seed(1)
        parts, threat = (battery.encoder(), LinearHead(battery.CLASSES)), ThreatModel(epsilon=0.1)
        method = FreeAdversarialTraining(*parts, threat=threat, replays=2, rows=small_run.BATCH)
        method.build((None, *battery.example_shape("supervised")))
        method.compile(keras.optimizers.SGD(0.05), jit_compile=False)
        method.optimizer.build(method.trainable_variables)
        average = small_run.AveragedWeights(decay=0.9, ramp=True)
        return make_loop(folder, method=method, callbacks=[average, Stop(*steps)], checkpoint_seconds=1e9), average

    uninterrupted, average = resumable(tmp_path / "whole")
    expected = outcome(uninterrupted, uninterrupted.run())
    assert int(average.count) == LAST and int(uninterrupted.method.step) == 2 * LAST
    assert np.all(np.any(uninterrupted.method.perturbation.numpy() != 0, axis=(1, 2, 3)))
    with pytest.raises(StopRequested, match="SIGTERM after step 6"):
        resumable(tmp_path / "parts", 2 * 5 + 1)[0].run()
    last, average = resumable(tmp_path / "parts")
    assert outcome(last, last.run()) == expected and int(average.count) == LAST


@pytest.mark.rest
def test_a_ramp_of_the_radius_survives_a_stop_in_its_middle(tmp_path):
    tf.config.experimental.enable_op_determinism()

    def resumable(folder, *steps):
        keras.utils.set_random_seed(1)
        adversary = battery.adversary(ramp=LinearRamp(1.0, delay=2, length=8))
        method = AdversarialTraining(battery.encoder(), LinearHead(battery.CLASSES), adversary=adversary)
        method.build((None, *battery.IMAGE_SHAPE))
        method.compile(keras.optimizers.SGD(0.05), jit_compile=False)
        return make_loop(folder, method=method, callbacks=[Stop(*steps)], checkpoint_seconds=1e9)

    uninterrupted = resumable(tmp_path / "whole")
    expected = outcome(uninterrupted, uninterrupted.run())
    # 0, 0, 0, 1 eighth of the radius of 0.1 in the first epoch, 2 to 5 in the second, 6, 7, 8, 8 in the last.
    assert expected["history"]["epsilon"] == pytest.approx([0.1 * eighths / 32 for eighths in (1, 14, 29)], rel=1e-5)
    with pytest.raises(StopRequested, match="SIGTERM after step 6"):
        resumable(tmp_path / "parts", 6).run()
    last = resumable(tmp_path / "parts")
    assert outcome(last, last.run()) == expected


class Broken(keras.callbacks.Callback):
    """Ends the run by an error in front of a global step, counted from 1."""

    def __init__(self, step):
        super().__init__()
        self.at = step

    def on_train_batch_begin(self, batch, logs=None):
        if int(self.model.step) + 1 == self.at:
            raise RuntimeError("broken")


@pytest.mark.parametrize("broken_at", [1, pytest.param(5, marks=pytest.mark.first), LAST])
def test_a_resumed_run_takes_every_batch_once(tmp_path, monkeypatch, broken_at):
    """Real batches and checkpoints around a step that only notes its images and counts."""
    seen = []

    def noting(loop):
        def train(batch):
            seen.append(batch.images.numpy())
            loop.method.step.assign_add(1)
            return {"loss": tf.constant(0.0)}

        return train

    monkeypatch.setattr(Loop, "_train_function", noting)
    with pytest.raises(RuntimeError, match="broken"):
        make_loop(tmp_path, "supervised", [Broken(broken_at)]).run()
    assert len(seen) == broken_at - 1
    resumed = make_loop(tmp_path, "supervised", [Broken(None)])
    assert resumed.run()["epoch"] == [1, 2, 3] and int(resumed.method.step) == LAST
    batches = [batch.images.numpy() for batch in small_run.batches(0).take(LAST)]
    assert len(seen) == LAST
    for images, batch_images in zip(seen, batches, strict=True):
        np.testing.assert_array_equal(images, batch_images)


def test_finished_only_refuses_to_train(tmp_path):
    with pytest.raises(InputError, match=f"training is at step 0 of {LAST}"):
        make_loop(tmp_path, "supervised", finished_only=True).run()
    with pytest.raises(StopRequested):
        make_loop(tmp_path, "supervised", [Stop(3)]).run()
    with pytest.raises(InputError, match=f"training is at step 3 of {LAST}"):
        make_loop(tmp_path, "supervised", [Stop()], finished_only=True).run()


def test_a_batch_that_cannot_be_read_is_one_line_and_the_checkpoint_is_kept(tmp_path):
    (tmp_path / "1.png").touch()

    def read(batch, step):
        name = tf.strings.join([str(tmp_path), "/", tf.strings.as_string(step), ".png"])
        nothing = tf.minimum(tf.strings.length(tf.io.read_file(name)), 0)  # used, or TensorFlow would not read the file
        return batch._replace(images=batch.images + tf.cast(nothing, tf.float32))

    def batches(start):
        return tf.data.Dataset.zip(small_run.batches(start), tf.data.Dataset.counter(start + 1)).map(read)

    with pytest.raises(
        Failure, match=r"batch of step 2 cannot be read \(.*/2.png; No such file or directory\).*verify=True names"
    ) as caught:
        make_loop(tmp_path, "supervised", batches=batches).run()
    assert "{{" not in str(caught.value) and os.listdir(tmp_path / "checkpoints") == ["step-00000001"]


def patient() -> list:
    """A constant never improves: the rate falls after epoch 2, and training ends after epoch 3 of 5."""
    constant = dict(monitor="val_constant", mode="max")
    log = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: logs.update(val_constant=0.5))
    log.best = "best.keras"  # not the number that Keras's callbacks keep under this name
    plateau = keras.callbacks.ReduceLROnPlateau(**constant, factor=0.1, patience=1)
    return [log, plateau, keras.callbacks.EarlyStopping(**constant, patience=2)]


def test_callbacks_remember_across_a_stop(tmp_path):
    for step in (2, 8, 11):
        with pytest.raises(StopRequested):
            make_loop(tmp_path, "supervised", [*patient(), Stop(step)], epochs=5).run()
    loop = make_loop(tmp_path, "supervised", [*patient(), Stop()], epochs=5)
    history = loop.run()
    assert history["epoch"] == [1, 2, 3]
    np.testing.assert_allclose(history["learning_rate"], [0.05, 0.05, 0.005], rtol=1e-6)
    # A run that was ended early is over: nothing is trained by coming back, and it may be exported.
    again = make_loop(tmp_path, "supervised", [*patient(), Stop()], epochs=5, finished_only=True)
    assert again.run() == history and int(again.method.step) == 12


def test_a_scheduler_changes_the_rate_once_per_epoch_across_a_stop(tmp_path):
    halving = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.5 * rate)
    for step in (4, 6):
        with pytest.raises(StopRequested):
            make_loop(tmp_path, "supervised", [halving, Stop(step)]).run()
    history = make_loop(tmp_path, "supervised", [halving, Stop()]).run()
    np.testing.assert_allclose(history["learning_rate"], [0.025, 0.0125, 0.00625], rtol=1e-6)


def test_a_training_ends_where_a_callback_of_another_worker_ends_it(tmp_path, monkeypatch):
    steps = iter(range(1, 100))
    monkeypatch.setattr(
        cluster.Agreement, "any", lambda self, overdue, ended, stopped: (overdue, next(steps) == 8, stopped)
    )
    loop = make_loop(tmp_path, "supervised")
    assert loop.run()["epoch"] == [1, 2] and int(loop.method.step) == 8
    monkeypatch.undo()
    assert make_loop(tmp_path, "supervised", finished_only=True).run()["epoch"] == [1, 2]


class Breaking(Supervised):
    """Its term is NaN from the sixth step on."""

    def loss_terms(self, views, batch, context):
        terms, logits = super().loss_terms(views, batch, context)
        return {"ce": terms["ce"] + tf.where(context.step >= 5, np.nan, 0.0)}, logits


class Cliff(Supervised):
    """A finite loss whose gradient is NaN from the sixth step on."""

    def loss_terms(self, views, batch, context):
        terms, logits = super().loss_terms(views, batch, context)
        nothing = tf.where(context.step >= 5, 0.0, 1.0) * logits[:, 0] ** 2
        return {"ce": terms["ce"] + 1e-9 * tf.sqrt(nothing)}, logits


@pytest.mark.parametrize("kind, message", stored.rows(globals(), "what_is_not_finite_is_named_and_the_checkpoint"))
def test_what_is_not_finite_is_named_and_the_checkpoint_before_it_kept(tmp_path, kind, message):
    method = kind(battery.encoder(), LinearHead(battery.CLASSES))
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile(optimizer=keras.optimizers.SGD(0.05, momentum=0.9), metrics=["accuracy"], jit_compile=False)
    with pytest.raises(TrainingDiverged, match=message):
        make_loop(tmp_path, method=method).run()
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["step-00000004", "step-00000005"]
    if kind is Cliff:
        return
    healed = make_loop(tmp_path, "supervised")
    assert np.isfinite(healed.run()["loss"]).all() and int(healed.method.step) == LAST


def test_weights_that_diverge_in_the_last_step_of_an_epoch_are_not_passed_to_callbacks(tmp_path):
    method = Cliff(battery.encoder(), LinearHead(battery.CLASSES))
    method.build((None, *battery.IMAGE_SHAPE))
    method.compile(optimizer=keras.optimizers.SGD(0.05), jit_compile=False)
    recorder = Recorder()
    with pytest.raises(TrainingDiverged, match="the gradients of step 6 made weights"):
        make_loop(tmp_path, method=method, callbacks=[recorder], steps_per_epoch=6, checkpoint_seconds=1e9).run()
    assert not recorder.epochs


@pytest.mark.parametrize("steps", [2, 50])
def test_a_profile_is_written_also_of_a_run_that_is_too_short_for_it(tmp_path, steps):
    make_loop(tmp_path, "supervised", epochs=1, profile_steps=steps, profile_directory=str(tmp_path / "logs")).run()
    assert list(pathlib.Path(tmp_path, "logs").glob("plugins/profile/*/*.xplane.pb"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_set_the_flag_until_the_context_exits(number):
    before = signal.getsignal(number)
    with deferred_signals() as flag:
        assert flag.requested is None
        os.kill(os.getpid(), number)
        assert flag.requested == number.name
    assert signal.getsignal(number) is before
