"""Two stages in one command: what the first hands to the second, what is refused, what a dry run and a report say."""

import functools
import json
import pathlib
from unittest import mock

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf
from faults.whole_run import train_in, unverified

from conformance import methods as battery
from tfrobust.commands import train
from tfrobust.common import fingerprint
from tfrobust.data.sources.digits import Digits
from tfrobust.errors import InputError
from tfrobust.keras import methods
from tfrobust.keras.attacks import PGD, ThreatModel
from tfrobust.keras.callbacks import AveragedWeights, BestWeights, CollapseWarning, RobustAccuracy
from tfrobust.keras.models import CNN, Backbone, LinearHead, ProjectionHead, Prototypes
from tfrobust.ops import keras_private
from tfrobust.ops.schedules import LinearRamp, OverTraining
from tfrobust.runs import estimate, initial_encoder, workdir
from tfrobust.runs.first_stage import Pretraining
from tfrobust.runs.stage import Stage, _refuse_silent

DIGITS = Digits(validation_size=100)


def encoder():
    return CNN(((4,), (6,)), dense=(8,))


def simclr(**parts):
    return methods.SimCLR(views=battery.SHIFT, **parts)


def pretraining(**changed):
    arguments = {"method": simclr, "optimizer": keras.optimizers.SGD, "epochs": 2, "batch_size": 64}
    return Pretraining(**arguments | changed)


def run(folder, **changed):
    """A whole run that measures nothing, in a folder."""
    return train_in(folder, **{"encoder": encoder, "data": DIGITS, "pretraining": pretraining()} | changed)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The folder and report of a run in two stages, on 128 labels, and a history of its encoder."""
    folder, seen = tmp_path_factory.mktemp("published"), []
    plain = Pretraining.hand_over

    def hand_over(self, network):
        seen.append([weight.numpy() for weight in network.weights])
        plain(self, network)

    with mock.patch.object(Pretraining, "hand_over", hand_over), unverified():
        report = run(folder, data=Digits(validation_size=1309), batch_size=128, pretraining=pretraining(data=DIGITS))
    return folder, report, seen


def test_the_probe_stands_on_the_encoder_as_it_was_pretrained(published):
    folder, _, (handed,) = published
    served = tf.saved_model.load(str(folder / "exported" / "small" / "1")).variables[: len(handed)]
    for before, after in zip(handed, served, strict=True):
        np.testing.assert_array_equal(before, after)


def test_the_report_names_both_stages_and_their_data(published):
    folder, report, _ = published
    training = report.training
    assert training["method"] == "Supervised" and report.data["train_size"] == 128
    first = training["pretraining"]
    assert (first["method"], first["epochs"], first["batch_size"], first["frozen"]) == ("SimCLR", 2, 64, True)
    assert first["train_size"] == 1337  # all images, few labels
    assert {"contrastive", "probe", "embedding_deviation"} <= set(first["last_epoch"])
    series = report.get_series("pretraining.history").columns
    assert series["epoch"] == [1, 2] and series["contrastive"][-1] == first["last_epoch"]["contrastive"]
    configuration = json.loads((folder / "run" / "training.json").read_text())
    assert configuration["pretraining"]["method"]["class_name"] == "SimCLR" and configuration["pretraining"]["frozen"]
    assert sorted(path.name for path in (folder / "run" / "pretraining").iterdir()) == [
        *("checkpoints", "history.csv", "logs")
    ]


@pytest.mark.rest
@pytest.mark.parametrize("change, part", stored.rows(globals(), "a_workdir_of_another_first_stage_is_refused"))
def test_a_workdir_of_another_first_stage_is_refused(published, change, part):
    data = {"data": Digits(validation_size=1309)}
    with pytest.raises(InputError, match=part):
        run(published[0], pretraining=pretraining(data=DIGITS, **change), **data)


def test_fine_tuning_moves_the_encoder_and_a_frozen_one_has_only_a_head_to_learn():
    for frozen in (True, False):
        network = encoder()
        first = pretraining(frozen=frozen)
        stage = first.stage(network, LinearHead, DIGITS, DIGITS.load(), 0)
        assert stage.method.encoder is network and stage.title == "stage 1 of 2, SimCLR"
        assert len(stage.method.trainable_variables) > 8
        second = methods.Supervised(network, LinearHead(10))
        second.build((None, 8, 8, 1))
        first.hand_over(network)
        assert (len(second.trainable_variables) == 2) == frozen


def test_a_stage_tells_a_method_how_many_images_there_are():
    stage = pretraining().stage(encoder(), LinearHead, DIGITS, DIGITS.load(), 0)
    assert stage.method.examples == 1337 and stage.steps_per_epoch == 20
    stage.callbacks = (BestWeights("best"),)
    facts = stage.configuration()
    fingerprint.json_sha256(facts)  # takes no infinity
    assert facts == json.loads(json.dumps(facts)) == workdir.canonical(facts) and facts["data_fingerprint"]


def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="Pretraining.epochs is 0"):
        pretraining(epochs=0)
    with pytest.raises(InputError, match="exclude each other: set only one"):
        run(tmp_path, pretrained=initial_encoder.Pretrained(path="exported/other"))
    with pytest.raises(InputError, match=r"the head returns 3 logits, but digits has 10 classes"):
        stage = Stage(
            method=methods.Supervised(encoder(), LinearHead(3)),
            dataset=DIGITS.load(),
            source=DIGITS,
            epochs=1,
            batch_size=8,
            seed=0,
        )
        stage.build(keras.optimizers.SGD())
    rule = {"false_negatives": methods.IFND(clusters=1338)}
    with pytest.raises(ValueError, match="IFND has 1338 clusters for 1337 images"):
        run(tmp_path, pretraining=pretraining(method=lambda **parts: simclr(**rule, **parts)))
    unwatched = functools.partial(simclr, probe=False)
    with pytest.raises(InputError, match="SimCLR.probe = False leaves the classifier untrained: use it as Pretraining"):
        run(tmp_path, method=unwatched, pretraining=None)
    stage = pretraining(method=unwatched).stage(encoder(), LinearHead, DIGITS, DIGITS.load(), 0)
    assert stage.method.probe is False and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("delay", "silent"), [(0, []), (19, []), (20, ["ce"]), (1000, ["ce"])])
def test_a_term_whose_schedule_never_begins_is_said(delay, silent, caplog):
    """Two epochs of ten steps; a weight of 0 that is no schedule is what was asked for."""
    for weight, expected in ((LinearRamp(1.0, delay=delay), silent), (0.0, [])):
        caplog.clear()
        method = methods.Supervised(encoder(), LinearHead(10), term_weights={"ce": weight})
        arguments = {"dataset": DIGITS.load(), "source": DIGITS, "epochs": 2, "batch_size": 128, "seed": 0}
        stage = Stage(method=method, **arguments)
        stage.build(keras.optimizers.SGD())
        assert stage.silent_terms() == expected and len(caplog.records) == len(expected)
        for record in caplog.records:
            assert "Supervised trains without its term ce: its scheduled weight is 0 in all 20" in record.getMessage()


def test_the_validation_that_selects_the_best_weights_is_part_of_a_training():
    def described(steps=2, every=1, source=DIGITS):
        attack = PGD(ThreatModel(epsilon=0.2), steps=steps)
        arguments = {"dataset": source.load(), "source": source, "epochs": 2, "batch_size": 128, "seed": 0}
        arguments |= {"validation": functools.partial(RobustAccuracy, attack=attack, every=every)}
        stage = Stage(method=methods.Supervised(encoder(), LinearHead(10)), **arguments)
        stage.build(keras.optimizers.SGD())
        return stage.configuration()

    before = described()
    assert workdir.differences(before, described()) == []
    for changed, part in (({"steps": 3}, "attack.steps is 2 there and 3"), ({"every": 2}, "every is 1 there and 2")):
        (difference,) = workdir.differences(before, described(**changed))
        assert difference.startswith("validation.RobustAccuracy.") and part in difference
    assert "validation" not in described(source=Digits(validation_size=0))


def spoken(caplog, method, optimizer, *, epochs=2, callbacks=()):
    """Return the log messages when a stage of 10 steps per epoch is built."""
    caplog.clear()
    arguments = {"dataset": DIGITS.load(), "source": DIGITS, "epochs": epochs, "batch_size": 128, "seed": 0}
    Stage(method=method, callbacks=callbacks, **arguments).build(optimizer)
    return [record.getMessage() for record in caplog.records]


def cosine(steps, **parts):
    return keras.optimizers.schedules.CosineDecay(0.1, steps, **parts)


@pytest.mark.parametrize("rate, zero_from", stored.rows(globals(), "a_rate_that_has_ended_before_the_training_has_is"))
def test_a_rate_that_has_ended_before_the_training_has_is_said(rate, zero_from, caplog):
    messages = spoken(caplog, methods.Supervised(encoder(), LinearHead(10)), keras.optimizers.SGD(rate))
    expected = f"Supervised: the learning rate is 0 from step {zero_from} of 20: set decay_steps"
    assert len(messages) == (zero_from is not None) and all(line.startswith(expected) for line in messages)


def test_an_average_that_begins_after_the_training_is_said(caplog):
    for start, count in ((2, 0), (3, 1)):
        method, average = methods.Supervised(encoder(), LinearHead(10)), AveragedWeights(kind="swa", start_epoch=start)
        messages = spoken(caplog, method, keras.optimizers.SGD(), callbacks=(average,))
        assert (
            messages == ["AveragedWeights averages nothing: its start_epoch 3 is after the last of 2 epochs."] * count
        )


def test_boundaries_of_another_batch_size_are_said(caplog):
    def piecewise(*boundaries):
        values = [0.1 / 10**index for index in range(len(boundaries) + 1)]
        return keras.optimizers.SGD(keras.optimizers.schedules.PiecewiseConstantDecay(list(boundaries), values))

    (message,) = spoken(caplog, methods.Supervised(encoder(), LinearHead(10)), piecewise(10, 19, 40))
    assert "changes at steps 10, 19, 40, and 2 of these come after the last of 20: boundaries count steps" in message
    assert not spoken(caplog, methods.Supervised(encoder(), LinearHead(10)), piecewise(10, 18))


@pytest.mark.parametrize("momentum, epochs, trained, kept", stored.rows(globals(), "batch_norms_that_start_slowly"))
def test_batch_norms_that_start_slowly_are_said(momentum, epochs, trained, kept, caplog):
    """Ten steps an epoch, so that momentum^(10 epochs) of the initial statistics is left."""
    layers = [keras.Input((8, 8, 1)), keras.layers.Conv2D(2, 3), keras.layers.BatchNormalization(momentum=momentum)]
    network = keras.Sequential(layers)
    if trained:
        network.layers[-1].moving_mean.assign([0.1, 0.0])
    method = methods.Supervised(Backbone(network, pixel_range=(0, 1)), LinearHead(10))
    messages = spoken(caplog, method, keras.optimizers.SGD(), epochs=epochs)
    texts = [f"keep {kept} of their initial statistics after {10 * epochs} steps of momentum {momentum}"] * bool(kept)
    assert len(messages) == len(texts) and all(text in message for text, message in zip(texts, messages, strict=True))


PERCENT = LinearRamp(1.0, delay=25, length=50)


def test_a_ramp_of_the_radius_is_described_and_one_without_end_is_said(caplog):
    """The stage tells a schedule over the training its length: 2 epochs of 10 steps."""

    def attacked(ramp):
        adversary = methods.Adversary(attack=PGD(ThreatModel(epsilon=0.2), steps=2), ramp=ramp)
        return methods.AdversarialTraining(encoder(), LinearHead(10), adversary=adversary)

    arguments = {"dataset": DIGITS.load(), "source": DIGITS, "epochs": 2, "batch_size": 128, "seed": 0}
    stage = Stage(method=attacked(OverTraining(PERCENT)), **arguments)
    stage.build(keras.optimizers.SGD(OverTraining(LinearRamp(1.0, length=10))))
    assert not caplog.records
    assert stage.facts()["epsilon_ramp"] == {"epochs_of_0": 0.6, "epochs_until_whole": 1.5}
    assert "radius      0 for 0.6 epochs, whole after 1.5 of 2" in stage.description()
    assert float(stage.method.optimizer.learning_rate) == 0.0
    for length, whole, line in ((20, 2.0, "whole after 2 of 2"), (40, None, "never whole")):
        short = Stage(method=attacked(LinearRamp(1.0, length=length)), **arguments)
        short.method.build((None, 8, 8, 1))
        assert short.facts()["epsilon_ramp"] == {"epochs_of_0": 0.1, "epochs_until_whole": whole}
        assert f"radius      0 for 0.1 epochs, {line}" in short.description()
    for value in (-1.0, 2.0):
        with pytest.raises(InputError, match=rf"ramp of the radius goes from {value:g} to {value:g}, .* in \[0, 1\]"):
            spoken(caplog, attacked(LinearRamp(value)), "sgd")
    with pytest.raises(InputError, match="SGD.gradient_accumulation_steps is 21, but the training has 20 steps"):
        spoken(caplog, attacked(LinearRamp(1.0)), keras.optimizers.SGD(gradient_accumulation_steps=21))
    (message,) = spoken(caplog, attacked(LinearRamp(1.0, length=40)), "sgd")
    assert message.startswith("AdversarialTraining: the ramp of the radius ends at 0.095 of 0.2 after 20 steps")
    assert not spoken(caplog, attacked(LinearRamp(1.0, length=20)), "sgd")
    with pytest.raises(InputError, match="Two trainings of different lengths share one OverTraining"):
        spoken(caplog, stage.method, "sgd", epochs=3)


def test_the_learning_rate_counts_batches_and_other_schedules_count_updates(caplog):
    """Of 20 batches, four each are an update: half of the training is ten batches, or two and a half updates."""
    ramp, rate = (OverTraining(keras.optimizers.schedules.CosineDecay(1.0, 100)) for _ in range(2))
    adversary = methods.Adversary(attack=PGD(ThreatModel(epsilon=0.2), steps=2), ramp=ramp)
    method = methods.AdversarialTraining(encoder(), LinearHead(10), adversary=adversary)
    stage = Stage(method=method, dataset=DIGITS.load(), source=DIGITS, epochs=2, batch_size=128, seed=0)
    stage.build(keras.optimizers.SGD(rate, gradient_accumulation_steps=4))
    rates, radii = [], []
    for batch in range(20):
        keras_private.batches_seen(method.optimizer).assign(batch)
        rates.append(float(method.optimizer.learning_rate))
        radii.append(float(ramp(batch // 4)))
    np.testing.assert_allclose(rates, (1 + np.cos(np.pi * np.arange(20) / 20)) / 2, atol=1e-6)
    np.testing.assert_allclose(radii, (1 + np.cos(np.pi * (np.arange(20) // 4) / 5)) / 2, atol=1e-6)
    for steps, warnings in (
        (20, []),
        (5, ["Supervised: the learning rate is 0 from step 5 of 20: set decay_steps to 20"]),
    ):
        accumulated = keras.optimizers.SGD(cosine(steps), gradient_accumulation_steps=4)
        messages = spoken(caplog, methods.Supervised(encoder(), LinearHead(10)), accumulated)
        assert [message.split(",")[0] for message in messages] == warnings


def test_settings_of_a_callback_belong_to_the_training_also_in_containers():
    class Plan(keras.callbacks.Callback):
        def __init__(self, setting):
            super().__init__()
            self.setting, self.images = setting, np.zeros(2)

    def described(setting):
        method = methods.Supervised(encoder(), LinearHead(10))
        arguments = {"dataset": DIGITS.load(), "source": DIGITS, "epochs": 2, "batch_size": 128, "seed": 0}
        stage = Stage(method=method, callbacks=(Plan(setting),), **arguments)
        stage.build("sgd")
        return json.loads(json.dumps(stage.configuration()))["callbacks"][0]["Plan"]

    settings = [(2, 4), (20, 40), {"rates": [0.1]}, {"rates": [0.2]}, cosine(2), cosine(3)]
    facts = [described(setting) for setting in settings]
    assert all(set(fact) == {"params", "setting"} for fact in facts)
    assert len({json.dumps(fact) for fact in facts}) == len(settings)


def free(**parts):
    return methods.FreeAdversarialTraining(
        encoder(), LinearHead(10), threat=ThreatModel(epsilon=0.2), rows=128, replays=4, **parts
    )


def test_the_updates_of_every_replay_count(caplog):
    """20 steps of 4 updates."""
    (message,) = spoken(caplog, free(), keras.optimizers.SGD(cosine(20)))
    assert message.startswith("FreeAdversarialTraining: the learning rate is 0 from step 20 of 80")
    assert not spoken(caplog, free(), keras.optimizers.SGD(cosine(80)))
    assert not spoken(caplog, free(term_weights={"ce_adv": LinearRamp(1.0, delay=70)}), "sgd")


def test_settings_of_keras_that_this_training_would_ignore_are_refused(caplog):
    with pytest.raises(ValueError, match="SGD.use_ema averages weights that no step uses"):
        spoken(caplog, methods.Supervised(encoder(), LinearHead(10)), keras.optimizers.SGD(use_ema=True))
    _refuse_silent(keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=2), ())
    for clip in ("clipnorm", "global_clipnorm", "clipvalue"):
        _refuse_silent(keras.optimizers.SGD(**{clip: 1.0}), ())
        two = mock.patch.object(tf.distribute, "get_strategy", return_value=mock.Mock(num_replicas_in_sync=2))
        with two, pytest.raises(ValueError, match=f"SGD.{clip} clips the gradient of each replica"):
            _refuse_silent(keras.optimizers.SGD(**{clip: 1.0}), ())
    restoring = keras.callbacks.EarlyStopping(restore_best_weights=True)
    with pytest.raises(ValueError, match="EarlyStopping.restore_best_weights: a resumed run does not have"):
        _refuse_silent(keras.optimizers.SGD(), (keras.callbacks.EarlyStopping(), restoring))
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=0))
    with pytest.raises(ValueError, match="SGD.use_ema averages weights that no step uses; set ema_overwrite_freq.*y.$"):
        _refuse_silent(scaled, (), last=False)
    _refuse_silent(keras.optimizers.SGD(), (AveragedWeights(),))
    with pytest.raises(ValueError, match="AveragedWeights has no effect on a first stage.*; leave it out.$"):
        _refuse_silent(keras.optimizers.SGD(), (AveragedWeights(),), last=False)


def byol(**parts):
    return methods.BYOL(encoder(), LinearHead(10), projection=ProjectionHead((8,), dim=4), views=battery.SHIFT, **parts)


def test_a_target_that_stands_still_too_early_is_said(caplog):
    for steps, count in ((10, 1), (20, 0)):
        messages = spoken(caplog, byol(target_rate=cosine(steps)), "sgd")
        assert len(messages) == count and all(
            "BYOL: the target rate is 0 from step 10 of 20" in line for line in messages
        )


def test_clusters_that_come_behind_the_last_epoch_are_said(caplog):
    for every, count in ((1, 0), (2, 1), (3, 1)):
        method = simclr(encoder=encoder(), head=LinearHead(10), false_negatives=methods.IFND(clusters=5, every=every))
        messages = spoken(caplog, method, "sgd")
        assert len(messages) == count
        assert all(
            f"SimCLR trains without IFND, which clusters first after epoch {every} of 2" in message
            for message in messages
        )


def test_the_second_stage_gets_the_encoder_of_dino_s_teacher(tmp_path):
    parts = {"projection": ProjectionHead((8,), dim=4), "prototypes": Prototypes(5, lengths="weight_norm")}
    first = pretraining(method=functools.partial(methods.DINO, views=battery.SHIFT, **parts), epochs=1, batch_size=512)
    stage = first.stage(encoder(), LinearHead, DIGITS, DIGITS.load(), 0)
    first.run(stage, tf.distribute.get_strategy(), tmp_path, tmp_path, verbose=0)
    student, teacher = stage.method.encoder, stage.method.target_encoder
    assert not student.trainable and int(stage.method.step) == 2
    for weight, teacher_weight in zip(student.weights, teacher.weights, strict=True):
        np.testing.assert_array_equal(weight, teacher_weight)


def test_a_branch_that_the_encoder_lacks_is_named_with_the_remedy():
    with pytest.raises(InputError, match=r"branch is 1, but CNN has no such branch\. Set CNN\.branches = 2\."):
        pretraining(branch=1).stage(encoder(), LinearHead, DIGITS, DIGITS.load(), 0)
    plain = keras.Sequential([keras.layers.Flatten()])
    with pytest.raises(InputError, match=r"but Sequential has no such branch\.$"):
        pretraining(branch=1).stage(plain, LinearHead, DIGITS, DIGITS.load(), 0)


def test_the_contrast_of_two_epochs_of_text_never_begins(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "_LONGEST_STEP", 0.0)  # the word is said before steps are made
    for epochs, count in ((2, 1), (6, 0)):
        caplog.clear()
        assert train.main(["--gin_file=gin/fcl_text.gin", f"--gin_param=EPOCHS={epochs}", "--dry_run"]) == 0
        assert sum("without its term feature_contrast" in record.getMessage() for record in caplog.records) == count


@pytest.mark.parametrize(("file", "passes"), [("simclr", 2), ("simclr_tikhonov", 4)])
def test_a_dry_run_estimates_both_stages(tmp_path, monkeypatch, capsys, file, passes):
    monkeypatch.chdir(tmp_path)
    if passes == 4:  # the closed form alone: the steps of one recipe are measured
        monkeypatch.setattr(estimate, "_LONGEST_STEP", 0.0)
    assert train.main([f"--gin_file=gin/{file}.gin", "--gin_param=Pretraining.epochs=3", "--dry_run"]) == 0
    output = capsys.readouterr().out
    first, _, second = output.partition("stage 1 of 2, SimCLR\n")[2].partition("stage 2 of 2, Supervised\n")
    assert "steps       30 (10 per epoch)" in first and f"{passes} forward and backward passes" in first
    assert "1 forward and backward passes" in second and not list(pathlib.Path(tmp_path).iterdir())


def test_a_collapse_is_noticed_once_in_one_line(caplog):
    watch = CollapseWarning()
    method = battery.build("simclr")  # projects to 4 features: 0.1 / sqrt(4)
    watch.set_model(method)
    for epoch, deviation in enumerate([0.5, 0.051, 0.049, 0.01]):
        watch.on_epoch_end(epoch, {"embedding_deviation": deviation})
    (record,) = caplog.records
    assert "collapsed in epoch 3: embedding_deviation is 0.049, below 0.05" in record.getMessage()
    watch.on_epoch_end(4, {"loss": 1.0})  # a method that observes none
    caplog.clear()
    watch = CollapseWarning(least_entropy=0.2)
    watch.set_model(method)
    for epoch, entropy in enumerate([0.1, 0.21, 0.19, 0.0]):
        watch.on_epoch_end(epoch, {"embedding_deviation": 0.5, "assignment_entropy": entropy})
    (record,) = caplog.records
    assert "assignments have collapsed in epoch 3: assignment_entropy is 0.19, below 0.2" in record.getMessage()
