"""Values against annotations."""

import collections.abc  # noqa: F401
import dataclasses
import typing  # noqa: F401

import keras
import pytest
import stored

from tfrobust.commands.configuration.parameters import Parameter, fits, parameters
from tfrobust.commands.configuration.statements import Macro, Reference  # noqa: F401
from tfrobust.common.configured import Configured


class Part:
    pass


class Special(Part):
    pass


class Model:
    def __call__(self, images):
        pass


def make() -> Part:
    return Part()


def make_unannotated():
    return Part()


OBJECTS = {"Part": Part, "Special": Special, "make": make, "make_unannotated": make_unannotated, "Model": Model}
OBJECTS |= {"SGD": keras.optimizers.SGD, "dict": dict}


def fit(value, hint, default=Parameter.__dataclass_fields__["default"].type) -> bool:
    return fits(value, Parameter("x", hint, default), lambda reference: OBJECTS[reference.selector])


def called(name):
    return Reference("", name, True)


def uncalled(name):
    return Reference("", name, False)


@pytest.mark.parametrize("value, hint", stored.rows(globals(), "fits"))
def test_fits(value, hint):
    assert fit(value, hint)


@pytest.mark.parametrize("value, hint", stored.rows(globals(), "does_not_fit"))
def test_does_not_fit(value, hint):
    assert not fit(value, hint)


def test_the_default_always_fits():
    assert fits(None, Parameter("x", int, None), None) and not fits("y", Parameter("x", int, None), None)


def test_keras_defaults_speak_for_themselves():
    by_name = parameters(keras.optimizers.SGD)
    assert {"learning_rate", "momentum", "nesterov", "clipnorm", "name"} <= set(by_name)
    resolve = OBJECTS.get
    assert fits(0.1, by_name["learning_rate"], resolve) and not fits("0.1", by_name["learning_rate"], resolve)
    assert not fits("yes", by_name["nesterov"], resolve) and not fits(1, by_name["nesterov"], resolve)


def test_the_whole_constructor_chain():
    class Base(Configured):
        def __init__(self, *, seed: int = 0, scale: "float | None" = None):
            pass

    class Member(Base):
        def __init__(self, width: int, **kwargs):
            super().__init__(**kwargs)

    by_name = parameters(Member)
    assert list(by_name) == ["width", "seed", "scale"]
    assert by_name["width"].required and not by_name["seed"].required
    assert by_name["scale"].hint == (float | None)


def test_dataclasses_and_functions():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Threat:
        norm: str = "linf"
        epsilon: float

    assert parameters(Threat)["epsilon"].required and parameters(Threat)["epsilon"].hint is float
    assert list(parameters(fit)) == ["value", "hint", "default"]


def test_what_keras_takes_silently_is_never_needed():
    class Layer(Configured, keras.layers.Layer):
        def __init__(self, width: int = 3, **kwargs):
            super().__init__(**kwargs)

    assert not any(item.required for item in parameters(Layer).values())
