"""Check that a switch set by one test does not reach the next one."""

import gin
import keras
import state
from tensorflow.python.framework import config

from tfrobust.commands.run import configure
from tfrobust.training import strategy


def test_what_the_commands_switch_is_put_back():
    strategy.set_determinism(True)
    strategy.set_precision("mixed_float16")
    configure(["gin/supervised.gin"])
    assert config.is_op_determinism_enabled() and keras.config.dtype_policy().name == "mixed_float16"
    assert gin.config_str()
    state.put_back()
    assert not config.is_op_determinism_enabled() and keras.config.dtype_policy().name == "float32"
    assert not gin.config_str()


def test_every_test_puts_it_back(request):
    """The fixture is there without being asked for, so that no test can forget it."""
    assert "_shared_state" in request.fixturenames
