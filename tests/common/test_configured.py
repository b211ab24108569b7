"""Constructor argument = attribute = config key."""

import copy
import dataclasses
import hashlib
import importlib
import linecache
import shutil
import sys
import types

import keras
import numpy as np
import pytest
import stored

from tfrobust.common.configured import Configured, constructor_arguments, deserialize, identity, serialize
from tfrobust.errors import InputError
from tfrobust.keras.attacks import FGSM, PGD, Ensemble, ThreatModel
from tfrobust.models.heads.linear import LinearHead
from tfrobust.structs import AttackResult


@keras.saving.register_keras_serializable(package="test_configured")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Part(Configured):
    size: int = 2
    shape: tuple[int, ...] = (1, 2)


@keras.saving.register_keras_serializable(package="test_configured")
class Child(Configured, keras.layers.Layer):
    def __init__(self, width, *, part=None, **kwargs):
        super().__init__(**kwargs)
        self.width, self.part = width, part or Part()


def test_a_dataclass_comes_back_equal():
    part = Part(size=5, shape=(3, 4))
    assert part.get_config() == {"size": 5, "shape": [3, 4]}
    assert Part.from_config(part.get_config()) == part
    assert deserialize(serialize(part)) == part


def test_a_layer_keeps_its_parts_and_what_keras_takes():
    layer = Child(3, part=Part(size=7), name="mine", dtype="float64")
    config = layer.get_config()
    assert {"width", "part", "name", "trainable", "dtype"} <= set(config)
    twin = Child.from_config(config)
    assert (twin.width, twin.part, twin.name, twin.dtype) == (3, Part(size=7), "mine", "float64")


def test_constructor_arguments_follow_the_chain():
    assert list(constructor_arguments(Child))[:2] == ["width", "part"]
    assert "name" in constructor_arguments(Child)
    assert list(constructor_arguments(Part)) == ["size", "shape"]


def test_an_identity_has_packages_in_place_of_modules(monkeypatch):
    """A key of stored results survives a move within a package, and differs between packages."""
    value = {"parts": [Part(size=5)]}
    before = identity(value)
    monkeypatch.setattr(Part, "__module__", f"{Part.__module__}.moved.deeper")
    assert identity(value) == before and serialize(value)["parts"][0]["module"].endswith(".moved.deeper")
    monkeypatch.setattr(Part, "__module__", "another.package")
    assert identity(value) != before
    assert identity({"module": None, "size": 1}) == {"module": None, "size": 1}


def test_an_identity_has_the_source_of_other_classes_and_their_bases(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    text = "import dataclasses, keras\nfrom tfrobust.common.configured import Configured\n"
    base = f"{text}class Base(Configured):\n    pass\n"
    head = '@keras.saving.register_keras_serializable(package="edited")\n@dataclasses.dataclass(frozen=True)\n'
    edited = f"{text}from tfrobust_test_base import Base\n{head}class Edited(Base):\n    size: int = 2\n"

    def identified(base, edited):
        for name, code in (("tfrobust_test_base", base), ("tfrobust_test_edited", edited)):
            (tmp_path / f"{name}.py").write_text(code)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        value = importlib.import_module("tfrobust_test_edited").Edited()
        return identity([value, FGSM(ThreatModel(epsilon=0.1))])

    before = identified(base, edited)
    assert before == identified(base, edited) and "source" not in str(before[1])
    changes = (base, f"{edited}    factor = 3\n"), (f"{base}    factor = 3\n", edited)
    after = [identified(*change) for change in changes]
    assert len({before[0]["source"], *(of_class["source"] for of_class, _ in after)}) == 3


def test_a_class_without_a_file_has_the_source_of_its_functions(monkeypatch):
    """Those of a notebook are in memory."""

    def defined(text):
        name = f"<cell {text}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        module = types.ModuleType("tfrobust_test_notebook")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(text, name, "exec"), vars(module))
        return identity({"module": module.__name__, "class_name": "Cell", "config": {}})["source"]

    @dataclasses.dataclass(frozen=True)
    class Local(Configured):  # neither registered nor in the namespace of its module
        size: int = 2

    with open(__file__, "rb") as file:
        assert identity(Local())["source"] == hashlib.sha256(file.read()).hexdigest()
    once, again, edited = (defined(f"class Cell:\n    def f(self):\n        return {n}\n") for n in (1, 1, 2))
    assert once == again != edited


@keras.saving.register_keras_serializable(package="test_configured")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Assembly(Configured):
    part: Part
    other: Part | keras.layers.Layer | None = None
    share: float | Part = 0.5


class Rule(Configured):
    def __call__(self, images):
        return images


@dataclasses.dataclass(frozen=True, kw_only=True)
class Called(Configured):
    rule: Rule


@pytest.mark.parametrize("make, message", stored.rows(globals(), "an_argument_of_another_class_is_named"))
def test_an_argument_of_another_class_is_named(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_what_annotations_allow_is_accepted():
    assert Called(rule=len).rule is len
    for other in (None, Part(), keras.layers.Identity()):
        assert Assembly(part=Part(), other=other, share=1).other is other
    assert copy.copy(Part(size=3)) == dataclasses.replace(Part(), size=3)


def test_objects_show_the_call_that_makes_them():
    threat = ThreatModel(epsilon=0.1)
    assert repr(threat) == "ThreatModel(epsilon=0.1)"
    assert repr(PGD(threat, steps=20)) == "PGD(threat=ThreatModel(epsilon=0.1), steps=20)"
    ensemble = Ensemble((FGSM(threat), PGD(threat)))
    assert repr(ensemble) == f"Ensemble(attacks=({FGSM(threat)!r}, PGD(threat=ThreatModel(epsilon=0.1))))"
    assert "LinearHead name=" in repr(LinearHead(class_count=3, name="mine")), "as Keras shows its layers"


@pytest.mark.parametrize("result, text", stored.rows(globals(), "a_result_of_an_attack_is_one_line"))
def test_a_result_of_an_attack_is_one_line(result, text):
    assert repr(AttackResult(np.zeros(3), *map(np.asarray, result[:2]), *result[2:])) == text
