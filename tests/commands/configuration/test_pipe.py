"""Names, macros, scopes and types of a whole configuration, and what gin then builds."""

import dataclasses
import pathlib
import re
import tomllib
from collections.abc import Callable

import gin
import keras
import pytest
import stored

from tfrobust.commands import run
from tfrobust.commands.configuration import binding, check_macros, files, knobs, pipe
from tfrobust.commands.configuration.registry import Registry
from tfrobust.common.configured import Configured
from tfrobust.errors import InputError

TABLES = tomllib.loads(pathlib.Path(__file__).with_name("tables.toml").read_text("utf-8"))


@pytest.fixture(autouse=True)
def _registrations():
    """Let gin forget the classes below: one has the short name of the library's PGD."""
    registry = gin.config._REGISTRY
    before = dict(registry.items())
    yield
    for name in [name for name, _ in registry.items() if name not in before]:
        registry.pop(name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreatModel(Configured):
    norm: str = "linf"
    epsilon: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PGD(Configured):
    threat: ThreatModel | None = None
    steps: int = 10


class OtherPGD(Configured):
    pass


class ASCL(Configured):
    def __init__(self, attack: PGD, *, temperature: float = 0.07, **kwargs):
        self.attack, self.temperature = attack, temperature


def train(*, method: Callable, optimizer: Callable = None, weights: dict = None, name: str = "x", workdir: str = ""):
    return method(), optimizer and optimizer(), weights, name


def registry() -> Registry:
    return Registry(
        {
            "tfrobust.runs.experiment.train": train,
            "tfrobust.methods.ascl.ASCL": ASCL,
            "tfrobust.attacks.gradient.PGD": PGD,
            "tfrobust.attacks.other.PGD": OtherPGD,
            "tfrobust.attacks.shared.threat.ThreatModel": ThreatModel,
            "keras.optimizers.SGD": keras.optimizers.SGD,
            "keras.optimizers.schedules.CosineDecay": keras.optimizers.schedules.CosineDecay,
        }
    )


RUN = stored.text(globals(), "run")


def load(tmp_path, text, *params, partial=False):
    path = tmp_path / "a.gin"
    path.write_text(text)
    bindings = files.read([str(path)], params)
    configurables = registry()
    check_macros.check_macros(bindings, partial)
    configuration = pipe.checked(bindings, configurables, partial)
    if not partial:
        binding.bind(configuration)
    return configurables


def complaint(tmp_path, text, *params, **keywords) -> str:
    with pytest.raises(InputError) as caught:
        load(tmp_path, text, *params, **keywords)
    message = " ".join(str(caught.value).split())
    return message


@pytest.mark.parametrize("stems, text, params, name", stored.rows(globals(), "a_run_is_named_after_its_files_unless"))
def test_a_run_is_named_after_its_files_unless_one_sets_a_name(tmp_path, stems, text, params, name):
    paths = [tmp_path / f"{stem}.gin" for stem in stems]
    for path in paths:
        path.write_text(text)
    default = knobs.default_name(files.read(list(map(str, paths)), params, "base/knobs.gin"), paths)
    assert (default and default.value) == name


@pytest.mark.parametrize("params, value", stored.rows(globals(), "the_default_of_SEED_leaves_the_seed_of_an"))
def test_the_default_of_SEED_leaves_the_seed_of_an_evaluation_to_the_report(params, value):
    run.configure(["gin/eval/quick.gin"], params, command="evaluate")
    assert gin.get_bindings("tfrobust.runs.experiment.evaluate")["seed"] == value


STAGES = """statements files macros radius knobs check_macros parameters registry resolution reach check_use
check_values binding printing pipe""".split()


def test_no_stage_imports_a_later_one():
    folder = pathlib.Path(pipe.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {*STAGES, "__init__"}
    for position, stage in enumerate(STAGES):
        text = (folder / f"{stage}.py").read_text("utf-8")
        named = " ".join(re.findall(r"^from tfrobust\.commands\.configuration[. ](.+)$", text, re.MULTILINE))
        assert set(re.findall(r"\w+", named)).isdisjoint(STAGES[position + 1 :]), stage


def test_the_configuration_of_a_workdir_keeps_its_name(tmp_path):
    path = tmp_path / "config.gin"
    path.write_text("NAME = 'own'")
    assert knobs.default_name(files.read([str(path)]), [str(path)]) is None


def test_builds_the_exact_classes(tmp_path):
    load(tmp_path, RUN, "EPSILON=0.1", "PGD.steps = 3".replace("PGD", "train/gradient.PGD"))
    method, optimizer, _, _ = gin.get_configurable("tfrobust.runs.experiment.train")()
    assert type(method) is ASCL and type(optimizer) is keras.optimizers.SGD
    assert method.attack == PGD(threat=ThreatModel(epsilon=0.1), steps=3)
    assert float(optimizer.learning_rate) == pytest.approx(0.01)


def test_the_printed_configuration_reads_back_the_same(tmp_path):
    load(tmp_path, RUN)
    gin.get_configurable("tfrobust.runs.experiment.train")()
    for text in (gin.config_str(), gin.operative_config_str()):
        assert "@ASCL" in text and "tfrobust." not in text  # the names of modules may change
        load(tmp_path, text)
        method, *_ = gin.get_configurable("tfrobust.runs.experiment.train")()
        assert method.attack.steps == 5 and method.attack.threat.epsilon == 0.2
    assert gin.config_str() == (load(tmp_path, gin.config_str()), gin.config_str())[1]


def test_the_differences_from_the_defaults(tmp_path):
    text = """
        EPOCHS = 6
        METHOD = @ASCL
        ASCL.adversary = @Adversary()
        Adversary.mode = 'inference'
        TRADES.adversary = @Adversary()
        training/PGD.restarts = 3
        RobustAccuracy.every = 5
        train.head = @LinearHead
        train.callbacks = (@AveragedWeights(),)
        NAME = 'a'
    """
    (tmp_path / "a.gin").write_text("include 'base/train.gin'\ninclude 'base/digits.gin'\n" + text)
    run.configure([str(tmp_path / "a.gin")])
    assert run.differing_text().splitlines()[1:] == [
        "NAME = 'a'",
        "EPOCHS = 6  # default 40",
        "METHOD = @ASCL",
        "training/PGD.restarts = 3  # default 1",
        "train.callbacks = (@AveragedWeights(),)  # default ()",
    ]


def test_a_called_part_in_a_nest_and_a_schedule(tmp_path):
    load(
        tmp_path,
        RUN + "train.weights = {'vat': [@w/CosineDecay(), 2]}\nw/CosineDecay.initial_learning_rate = 1.0\n"
        "w/CosineDecay.decay_steps = 10\n",
    )
    _, _, weights, _ = gin.get_configurable("tfrobust.runs.experiment.train")()
    assert type(weights["vat"][0]) is keras.optimizers.schedules.CosineDecay and weights["vat"][1] == 2


@pytest.mark.parametrize(("line", "part"), TABLES["mistakes"])
def test_one_line_for_each_mistake(tmp_path, line, part):
    assert part in complaint(tmp_path, RUN + line + "\n")


def test_flags_for_what_nothing_uses_are_refused(tmp_path):
    message = complaint(tmp_path, RUN, "EPSLON=0.9")
    assert message.startswith("--gin_param=EPSLON=0.9: nothing uses EPSLON; nearest: EPSILON")
    message = complaint(tmp_path, RUN, "CosineDecay.alpha=0.5")
    assert "nothing here uses CosineDecay; this configuration uses" in message and "ASCL" in message
    load(tmp_path, RUN + "CosineDecay.alpha = 0.5\n")  # a shared base file may say more than one run needs


def test_a_missing_argument_is_named(tmp_path):
    text = RUN.replace("ThreatModel.epsilon = %EPSILON", "")
    assert "ThreatModel needs epsilon" in complaint(tmp_path, text)


def test_knobs_may_be_set_where_nothing_uses_them(tmp_path):
    load(tmp_path, RUN + "EVAL_EPSILON = %EPSILON\nEVAL_NORM = 'l2'\nEPOCHS = 3\n")


def test_own_data_leave_the_radius_open(tmp_path):
    data = "EPSILON = %gin.REQUIRED\nEVAL_EPSILON = %EPSILON\n"
    used = "ThreatModel.epsilon = %EVAL_EPSILON\n"
    text = RUN.replace("EPSILON = 0.2\n", "").replace("ThreatModel.epsilon = %EPSILON\n", "") + data
    message = complaint(tmp_path, text + used)
    assert "0.0314 (8/255, hard to see) for photographs, 0.2 to 0.3 for gray digits" in message and len(message) < 300
    load(tmp_path, text + "ThreatModel.epsilon = 0.1")  # nothing needs the knob
    for param in ("EPSILON=0.1", "EVAL_EPSILON=0.1"):
        load(tmp_path, text + used, param)


def test_a_part_may_lack_what_others_bring(tmp_path):
    part = "DATASET = @ThreatModel()\nThreatModel.epsilon = %SIZE\n"
    load(tmp_path, part, partial=True)
    assert complaint(tmp_path, part)
    assert "must be a float" in complaint(tmp_path, part + "ThreatModel.epsilon = 'x'\n", partial=True)


def test_deep_and_long_values(tmp_path):
    nest = "[" * 60 + "]" * 60
    assert "must be a float" in complaint(tmp_path, RUN + f"ASCL.temperature = {nest}\n")
    chain = "".join(f"M{i} = %M{i + 1}\n" for i in range(300)) + "M300 = 1\ntrain.name = %M0\n"
    assert "circle" in complaint(tmp_path, RUN + chain)
