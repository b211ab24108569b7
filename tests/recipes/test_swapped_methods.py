"""Check that another METHOD keeps radius, norm and steps of a recipe, and that settings without effect are refused."""

import inspect
import re

import gin
import pytest
import stored

from tfrobust import keras as robust
from tfrobust.commands.run import configure
from tfrobust.errors import InputError
from tfrobust.keras.models import DigitsCNN, LinearHead

METHODS = sorted(
    name
    for name, kind in vars(robust.methods).items()
    if inspect.isclass(kind) and issubclass(kind, robust.methods.Method) and kind is not robust.methods.Method
)
STEPPING = ["ACL", "ADR", "ASCL", "AdversarialTraining", "FARE", "HAT", "MART", "MTLIBP"]
STEPPING += ["MultiNormTraining", "ReLUStability", "RoCL", "SmoothAdv", "TRADES"]
BOUNDING = ["CROWNIBP", "IBP", "MTLIBP", "ReLUStability"]
# What their constructors need besides.
PARTS = {"HAT": ["HAT.helper=@TeacherLogits()", "TeacherLogits.path='x'"]}
RECIPE = "include 'trades.gin'\nEPSILON = 0.1\nNORM = {norm!r}\nSTEPS = 7\n"


def swapped(tmp_path, name: str, norm: str, steps: bool = True):
    """The method of a user's recipe with another METHOD by a flag."""
    text = RECIPE.format(norm=norm)
    path = tmp_path / "mine.gin"
    path.write_text(text if steps else text.replace("STEPS = 7\n", ""))
    configure([str(path)], [f"METHOD=@{name}", *PARTS.get(name, [])], command="train")
    bindings = gin.get_bindings("tfrobust.runs.experiment.train", resolve_references=True)
    return bindings["method"](encoder=DigitsCNN(branches=2), head=LinearHead(10), seed=0)


def test_there_are_as_many_methods_as_the_guides_say():
    assert len(METHODS) == 37 and {*STEPPING, *BOUNDING} < set(METHODS)


@pytest.mark.parametrize("norm", ["linf", pytest.param("l2", marks=pytest.mark.rest)])
@pytest.mark.parametrize("name", METHODS)
def test_a_swap_keeps_radius_norm_and_steps(tmp_path, name, norm):
    if name in STEPPING and name in BOUNDING and norm == "l2":
        with pytest.raises(InputError, match=f"{name}.norm is 'l2'"):
            swapped(tmp_path, name, norm)
        return
    if name in STEPPING:
        attack = swapped(tmp_path, name, norm).adversary.attack
        assert (attack.threat.norm, attack.threat.epsilon, attack.steps) == (norm, 0.1, 7)
        return
    read_by = re.escape(", ".join(STEPPING))
    with pytest.raises(InputError, match=rf"mine.gin:4: .*METHOD = @{name}\) reads STEPS = 7; read by {read_by}$"):
        swapped(tmp_path, name, norm)
    if name in BOUNDING and norm == "l2":
        with pytest.raises(InputError, match=f"{name}.norm is 'l2'"):
            swapped(tmp_path, name, norm, steps=False)
        return
    method = swapped(tmp_path, name, norm, steps=False)
    if name == "FreeAdversarialTraining":
        assert (method.threat.norm, method.threat.epsilon, method.rows) == (norm, 0.1, 128)
    elif name in BOUNDING:
        assert method.epsilon == 0.1
    else:
        assert getattr(method, "adversary", None) is None


@pytest.mark.parametrize("params, message", stored.rows(globals(), "a_setting_that_nothing_reads_is_refused"))
def test_a_setting_that_nothing_reads_is_refused(params, message):
    with pytest.raises(InputError, match=message) as raised:
        configure(["gin/adversarial_training.gin"], params, command="train")
    assert len(str(raised.value)) <= 300


def test_a_recipe_for_training_serves_an_evaluation(tmp_path):
    (tmp_path / "mine.gin").write_text(RECIPE.format(norm="linf"))
    files = [str(tmp_path / "mine.gin"), "gin/eval/quick.gin"]
    configure(files, ["EPSILON=0.3"], command="evaluate")
    with pytest.raises(InputError, match="nothing of this run reads STEPS = 3"):
        configure(files, ["STEPS=3"], command="evaluate")
