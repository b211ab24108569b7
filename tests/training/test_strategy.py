"""From words in a gin file to a strategy, XLA and determinism."""

import pytest
import stored
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.training import strategy


@pytest.fixture
def gpus(monkeypatch):
    """Pretends that there are so many GPUs."""

    def pretend(count):
        def devices(kind=None):
            return [f"{kind}:{number}" for number in range(count if kind == "GPU" else 1)]

        monkeypatch.setattr(tf.config, "list_physical_devices", devices)
        monkeypatch.setattr(tf.config, "list_logical_devices", devices)

    return pretend


class Replicas:
    def __init__(self, count):
        self.num_replicas_in_sync = count


def test_a_single_device_needs_no_strategy(gpus):
    for count in (0, 1):
        gpus(count)
        assert strategy.make_strategy("auto") is tf.distribute.get_strategy()
    assert strategy.make_strategy("one_device") is tf.distribute.get_strategy()


def test_a_tpu_that_is_not_there_is_the_users_to_put_right(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(InputError, match="no TPU can be reached") as caught:
        strategy.make_strategy("tpu")
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize("choice, count, replicas, expected", stored.rows(globals(), "when_xla_compiles_the_step"))
def test_when_xla_compiles_the_step(gpus, choice, count, replicas, expected):
    gpus(count)
    assert strategy.use_xla(choice, Replicas(replicas)) is expected


@pytest.mark.parametrize(
    "choice, count, expected", [("auto", 0, True), ("auto", 1, False), (True, 1, True), (False, 0, False)]
)
def test_when_operations_are_deterministic(gpus, monkeypatch, choice, count, expected):
    gpus(count)
    switched = []
    monkeypatch.setattr(tf.config.experimental, "enable_op_determinism", lambda: switched.append(True))
    assert strategy.set_determinism(choice) is expected and bool(switched) is expected
