"""The commands: which flags reach which function, and mistakes that end with 2 before anything is written."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest
import stored
from report.synthetic import make_report

from tfrobust.commands import __main__ as console
from tfrobust.commands import compare, evaluate, export, published, run, train

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def asked(monkeypatch):
    """Records what a command would configure and call."""
    record = {}

    def configure(paths, params=(), imports=(), **keywords):
        record.update(paths=list(paths), params=list(params), imports=list(imports), **keywords)

    for module in (run, export):
        monkeypatch.setattr(module, "configure", configure)
    monkeypatch.setattr(run, "_configuration", run.Configuration([], run.registry.Registry({})))  # not the last test's
    monkeypatch.setattr(evaluate.supervised, "continue_in_child", lambda model: None)  # it would copy the tests
    for command in (train, evaluate, export):
        monkeypatch.setattr(command, "call", lambda name, **runtime: record.update(name=name, runtime=runtime))
    return record


def test_help_names_the_commands_and_the_folders_of_guides_and_gin_files(capsys):
    assert console.main([]) == 0
    *lines, guides, gin = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == set(console.COMMANDS)
    assert pathlib.Path(guides.removeprefix("guides:").strip(), "serving.md").is_file()
    assert pathlib.Path(gin.removeprefix("gin files:").strip(), "trades.gin").is_file()
    assert console.main(["--version"]) == 0 and capsys.readouterr().out.startswith("tfrobust ")


def test_train_hands_its_flags_and_defaults_on(asked):
    flags = ["--gin_file=gin/a.gin", "--gin_file", "b.gin", "--gin_param=SEED=1", "--gin_import=os.path"]
    assert train.main([*flags, "--workdir=w", "--export_dir=e", "--version=3", "--profile=5", "--dry_run"]) == 0
    assert [asked[name] for name in ("name", "paths", "params")] == ["train", ["gin/a.gin", "b.gin"], ["SEED=1"]]
    assert asked["imports"] == ["os.path"] and callable(asked["runtime"].pop("configuration"))
    budget = asked["runtime"].pop("budget")
    assert budget.seconds is None and budget.command([], 5, 2) == (
        "tfrobust train --gin_file=gin/a.gin --gin_file=b.gin --gin_param=SEED=1 --gin_import=os.path --workdir=w "
        "--export_dir=e --version=3 --profile=5 '--gin_param=EVALUATORS=[...]' --gin_param=EVAL_EXAMPLES=5 "
        "--gin_param=EPOCHS=2"
    )
    arguments = {"workdir": "w", "export_dir": "e", "version": 3, "profile": 5, "dry_run": True}
    rest = {"training_must_be_done": False, "publish_anyway": False, "verbose": 1, "allow_downloads": False}
    assert asked["runtime"] == {**arguments, **rest}
    assert train.main(["--gin_file=some/where/ascl_leaked.gin"]) == 0
    del asked["runtime"]["configuration"]
    defaults = {"workdir": None, "export_dir": "exported", "version": None, "profile": 0}
    assert asked["runtime"] == {**defaults, "dry_run": False, "budget": None, **rest}


def test_flags_expand_the_home_folder_which_shells_do_only_for_separate_words(asked, monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    assert train.main(["--gin_file=~/a.gin", "--workdir=~/w", "--gin_param=NAME='~/x'"]) == 0
    assert (
        asked["paths"] == ["/h/a.gin"] and asked["runtime"]["workdir"] == "/h/w" and asked["params"] == ["NAME='~/x'"]
    )


def test_evaluate_hands_its_flags_on(asked):
    flags = ["--model=.", "--gin_file=a.gin", "--logits_output=logits", "--output=o"]
    assert evaluate.main(flags) == 0
    runtime = asked["runtime"]
    assert "data" not in runtime and callable(runtime.pop("configuration"))
    defaults = {
        "output": "o",
        "surrogate": None,
        "shard": None,
        "attach": False,
        "verbose": 1,
        "dry_run": False,
        "budget": None,
    }
    defaults |= {"signature": None, "channels_first": False}
    defaults |= {"bounds": (0.0, 1.0), "allow_downloads": False}
    assert runtime == {"model": ".", "logits_output": "logits", **defaults}
    for verbose, flag in enumerate(["--quiet", "--verbose"]):
        assert evaluate.main([*flags, flag]) == 0 and asked["runtime"]["verbose"] == 2 * verbose


def test_a_surrogate_may_be_on_the_hub_and_a_budget_keeps_the_share(asked, monkeypatch):
    monkeypatch.setattr(evaluate.hub, "local", lambda name: name.replace("hf://", "home/"))
    assert evaluate.main(["--model=.", "--gin_file=a.gin", "--shard=1/4", "--surrogate=hf://me/s", "--dry_run"]) == 0
    assert asked["runtime"]["surrogate"] == "home/me/s" and asked["runtime"]["shard"] == (1, 4)
    command = asked["runtime"]["budget"].command(None, None, None)
    assert command == "tfrobust evaluate --model=. --gin_file=a.gin --surrogate=hf://me/s --shard=1/4"


def test_published_rows_stand_below_a_comparison(tmp_path, capsys, monkeypatch):
    report = make_report(name="mine")
    report = dataclasses.replace(report, data=report.data | {"name": "cifar10"})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "robustness_report.json").write_text(report.to_json())
    monkeypatch.chdir(tmp_path)
    flags = [str(tmp_path / "mine"), "--output=page.html", "--published"]
    row = "TRADES, beta = 6 (Table 4)"
    for end, line in (("table", f"  {row}  "), ("markdown", f"| {row} | Nat. 76.1, PGD 51.9, mPGD 38.2, AA 36.3 |")):
        assert compare.main([*flags[:-1], "--published=cifar10_resnet20", f"--format={end}"]) == 0
        assert "Bui et al. 2021: CIFAR-10, ResNet20" in (text := capsys.readouterr().out) and line in text
    assert compare.main([*flags[:-1], "--published=cifar10_resnet20", "--format=json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["published"]
    assert table["base"] == "cifar10_resnet20" and [row, "Nat. 76.1, PGD 51.9, mPGD 38.2, AA 36.3"] in table["rows"]
    assert compare.main([*flags[:-1], "--published=cifar10_resnet21"]) == 2
    assert "no table in gin/papers is about 'cifar10_resnet21'; name one of cifar10_resnet20" in capsys.readouterr().err
    bases = {table.base for table in published.tables("", ["cifar10"])}
    assert {"cifar10_resnet20", "cifar10_c_resnet56"} <= bases and "cifar100_resnet20" not in bases


@pytest.mark.parametrize("model, gin_files, output", stored.rows(globals(), "an_evaluation_is_kept_below_runs_unless"))
def test_an_evaluation_is_kept_below_runs_unless_an_output_is_named(model, gin_files, output):
    assert evaluate.default_output(model, gin_files) == f"runs/evaluate/{output}"


def test_export_reads_the_configuration_of_the_workdir(asked, tmp_path):
    (tmp_path / "config.gin").write_text("SEED = 1\n")
    assert export.main([f"--workdir={tmp_path}", "--export_dir=e"]) == 0
    assert asked["paths"] == [str(tmp_path / "config.gin")] and asked["defaults"] is False
    assert asked["runtime"]["training_must_be_done"] and asked["runtime"]["export_dir"] == "e"


@pytest.mark.parametrize("command, flags, part", stored.rows(globals(), "wrong_usage_is_one_line_and_nothing_is"))
def test_wrong_usage_is_one_line_and_nothing_is_written(tmp_path, monkeypatch, capfd, command, flags, part):
    monkeypatch.chdir(tmp_path)
    assert command.main(flags) == 2
    output = capfd.readouterr()
    (line,) = output.err.splitlines()
    assert part in line and line.startswith("error: ") and len(line) <= 300 and output.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command, flag, message",
    [
        ("train", "--dry_run", "bad.gin:1: a gin file must not import"),
        ("train", "--workdir=gs://bucket/x", "--workdir is gs://bucket/x, but runs write to folders only"),
        ("evaluate", "--model=none", "There is no model at none"),
    ],
)
def test_mistakes_are_found_without_tensorflow(tmp_path, command, flag, message):
    (tmp_path / "bad.gin").write_text("import os\n")
    code = (
        f"import sys; from tfrobust.commands import {command}; c = {command}.main(['--gin_file=bad.gin', '{flag}']); "
        "print('tensorflow' in sys.modules); sys.exit(c)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2 and done.stdout == "False\n"
    assert done.stderr.count("\n") == 1 and message in done.stderr


def test_what_data_may_be(tmp_path):
    from tfrobust.data.sources import cifar, digits, folder, npz, tfds

    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "dataset_info.json").write_text("{}")
    (tmp_path / "cifar" / "cifar-10-batches-py").mkdir(parents=True)
    (tmp_path / "cifar" / "cifar-10-batches-py" / "data_batch_1").touch()
    for text, kind in {
        "digits": digits.Digits,
        "mine.npz": npz.Npz,
        "cifar-10-python.tar.gz": cifar.Cifar,
        str(tmp_path / "cifar"): cifar.Cifar,
        str(tmp_path / "images"): folder.ImageFolder,
        str(tmp_path / "prepared"): tfds.TensorFlowDatasets,
        "mnist": tfds.TensorFlowDatasets,
    }.items():
        source = evaluate._source(text)
        # Of an image folder the model's input size is still missing.
        assert getattr(source, "func", type(source)) is kind, text


def test_cifar_is_told_from_an_image_folder_by_its_files_names(tmp_path):
    from tfrobust.data.sources import cifar, folder

    for name, files, kind in (
        ("cifar100", ["train", "test", "meta"], cifar.Cifar),
        ("binary", ["train.bin", "test.bin", "fine_label_names.txt"], cifar.Cifar),
        ("incomplete", ["test_batch", "data_batch_3"], cifar.Cifar),
        ("parent/cifar-10-batches-bin", ["data_batch_1.bin"], cifar.Cifar),
        ("batches", ["good_batch/a.png", "bad_batch/a.png", "my_batch.txt"], folder.ImageFolder),
        ("split", ["train/a/1.png", "test/a/2.png", "meta"], folder.ImageFolder),
        ("deep", ["cat/data_batch_1/one.png", "dog/one.png"], folder.ImageFolder),
    ):
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).touch()
        source = evaluate._source(str(tmp_path / name))
        assert getattr(source, "func", type(source)) is kind, name
    assert type(evaluate._source(str(tmp_path / "parent"))) is cifar.Cifar


def test_a_dry_run_lists_what_lies_outside_before_it_reads_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    params = ["DATA=@TensorFlowDatasets()", "TensorFlowDatasets.dataset='mnist'", "TensorFlowDatasets.download=True"]
    params += [f"TensorFlowDatasets.data_dir='{tmp_path}/data'", "EPSILON=0.1"]
    flags = ["--gin_file=gin/supervised.gin", "--dry_run", *(f"--gin_param={param}" for param in params)]
    assert train.main(flags) == 2
    output = capsys.readouterr()
    assert "outside     downloads TensorFlowDatasets.download = True\n" in output.out
    assert f"outside     reads TensorFlowDatasets.data_dir = '{tmp_path}/data'\n" in output.out
    assert "the data set 'mnist' (TensorFlowDatasets.download = True) would be downloaded: add --allow" in output.err
    monkeypatch.setattr("tfrobust.data.sources.tfds.network_reachable", lambda: False)
    assert train.main([*flags, "--allow_downloads"]) == 2
    assert "cannot be reached" in capsys.readouterr().err
