import keras
import numpy as np
import pytest

from tfrobust.ops.schedules import LinearRamp, OverTraining, over_training


def test_a_ramp_waits_rises_and_stays_in_steps_or_epochs_and_without_length_it_jumps():
    ramp = LinearRamp(2.0, delay=100, length=50)
    assert [float(ramp(step)) for step in (0, 99, 100, 110, 125, 150, 10**6)] == pytest.approx(
        [0, 0, 0, 0.4, 1, 2, 2], abs=1e-6
    )
    assert [float(LinearRamp(0.3, delay=5)(np.int64(step))) for step in (0, 4, 5, 6)] == pytest.approx([0, 0, 0.3, 0.3])
    by_epoch, by_step = LinearRamp(1.0, delay=2, length=2, steps_per_unit=7), LinearRamp(1.0, delay=14, length=14)
    assert [float(by_epoch(s)) for s in range(40)] == [float(by_step(s)) for s in range(40)]


def test_a_schedule_rises_and_goes_its_own_way():
    steps = keras.optimizers.schedules.PiecewiseConstantDecay([9, 19], [1.0, 0.1, 0.01])  # until 9, until 19
    for length, expected in ((5, [0, 0.4, 1, 1, 0.1, 0.01]), (0, [1, 1, 1, 1, 0.1, 0.01])):
        ramp = LinearRamp(steps, length=length)
        twin = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(ramp))
        for schedule in (ramp, twin):
            assert [float(schedule(step)) for step in (0, 2, 5, 9, 10, 20)] == pytest.approx(expected)


def test_over_training_counts_shares_of_it():
    percent = LinearRamp(1.0, delay=25, length=50)
    for updates in (4, 400):
        schedule = OverTraining(percent, updates=updates)
        assert [float(schedule(share * updates)) for share in (0, 0.25, 0.5, 0.75, 1)] == [0, 0, 0.5, 1, 1]
    unknown = OverTraining(keras.optimizers.schedules.CosineDecay(1.0, 2), units=2)
    with pytest.raises(ValueError, match="OverTraining.updates is not set: outside of tfrobust.train"):
        unknown(0)
    assert over_training({"a": [LinearRamp(unknown)], "b": (0.5, None, "c")}) == [unknown]
    unknown.begin(8)
    assert float(unknown(4)) == pytest.approx(0.5)
    assert type(unknown).from_config(unknown.get_config()).updates is None
