"""Check that the printed commands parse, and that each of them runs with its smallest settings."""

import argparse
import contextlib
import functools
import glob
import importlib
import json
import os
import pathlib
import re
import runpy
import shutil
import sys
from unittest import mock

import numpy as np
import printed
import pytest
import stored
import tensorflow as tf
from faults import processes
from printed import ROOT, Command

from tfrobust.commands.configuration import files
from tfrobust.commands.run import configure
from tfrobust.errors import InputError

COMMANDS = printed.collect()
# Packages of the environments in which a peer's outputs are recorded; the tools parse without them.
ABSENT = [
    *("tensorflow_addons", "torch", "torch.nn", "torchvision", "torchvision.models", "torchvision.models.video"),
    *("foolbox", "adv_lib", "adv_lib.attacks"),
]


def params(commands):
    return [pytest.param(command, id=f"{command}"[:120]) for command in commands]


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> pathlib.Path:
    """Return a folder with the files that the guides tell a reader to write."""
    folder = tmp_path_factory.mktemp("reader")
    for page in printed.CHECKED:
        for block in printed.blocks(printed.text_of(page)):
            if block.name:
                (folder / block.name).write_text(block.text)
    return folder


# ----------------------------------------------------------------------------------------------- they parse


class Parsed(Exception):
    """Ends a program as soon as it has parsed its command line."""


def parse(command: Command):
    """Return the parsed command line; raise InputError, SystemExit or SyntaxError if the program refuses it."""
    if command.program == "-c":
        compile(command.arguments[0], "-c", "exec")
    if command.program in ("-c", "pytest", "tools/check"):
        return argparse.Namespace()
    if command.program == "tfrobust.serving.scan":
        if any(word.startswith("-") for word in command.arguments):
            raise InputError(f"{command.program} takes no flags")
        return argparse.Namespace()
    if command.program.startswith("tfrobust."):
        return importlib.import_module(command.program).parser().parse_args(command.arguments)
    if not (ROOT / command.program).is_file():
        raise InputError(f"there is no {command.program}")
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in ABSENT}))
        stack.enter_context(mock.patch.object(sys, "argv", [command.program, *command.arguments]))
        stack.enter_context(mock.patch.object(sys, "path", [str((ROOT / command.program).parent), *sys.path]))
        if "\ndef parser(" in (ROOT / command.program).read_text("utf-8"):
            return runpy.run_path(str(ROOT / command.program))["parser"]().parse_args(command.arguments)
        original = argparse.ArgumentParser.parse_args

        def parse_args(self, arguments=None, namespace=None):
            raise Parsed(original(self, arguments, namespace))

        stack.enter_context(mock.patch.object(argparse.ArgumentParser, "parse_args", parse_args))
        with pytest.raises(Parsed) as parsed:
            runpy.run_path(str(ROOT / command.program), run_name="__main__")
    return parsed.value.args[0]


def check(command: Command) -> None:
    """Raise InputError or SystemExit for a command that is refused as it stands, its gin files and values included."""
    flags = vars(parse(command))
    gin_files = flags.get("gin_file") or []
    if command.program in ("tfrobust.train", "tfrobust.evaluate"):
        if gin_files:
            added = ("train.plan=@Plan()",) if flags.get("replicas") else ()  # as the command does
            configured(command.program, tuple(gin_files), (*added, *flags["gin_param"]), tuple(flags["gin_import"]))
        return
    for name in [*gin_files, *(f"gin/{stem}.gin" for stem in method_stems(command, flags))]:
        files.find(name, command.program)
    if flags.get("train_flags"):
        check(Command("tfrobust.train", tuple(flags["train_flags"])))


def check_text(command: Command) -> None:
    """Raise for the command of a recipe whose flags or gin text are refused; tests/recipes build what they say."""
    flags = parse(command)
    files.read(flags.gin_file, flags.gin_param)


def method_stems(command: Command, flags: dict) -> list[str]:
    stems = flags.get("methods") or [] if command.program == "tools/benchmarks/digits_table.py" else []
    return stems.split(",") if isinstance(stems, str) else stems


@functools.cache
def configured(program: str, gin_files: tuple, parameters: tuple, imports: tuple) -> None:
    configure(list(gin_files), list(parameters), list(imports), command=program.rpartition(".")[2])


@pytest.mark.parametrize("program", sorted({command.program for command in COMMANDS}))
def test_the_commands_of_a_program_parse(program, written, monkeypatch):
    monkeypatch.chdir(written)
    monkeypatch.syspath_prepend(str(written))
    refused = []
    for command in COMMANDS:
        if command.program == program:
            try:
                (check_text if recipe_of_a_paper(command) else check)(command)
            except (InputError, SystemExit, SyntaxError) as error:
                refused.append(f"{command.places}: {command}: {error}")
    assert refused == []


def recipe_of_a_paper(command: Command) -> bool:
    """Return True for a command of a paper's page: tests/recipes build them all, and train with some."""
    return not set(command.places).isdisjoint(map(printed.relative, printed.RECIPES))


@pytest.mark.parametrize("line", stored.rows(globals(), "a_wrong_command_is_found"))
def test_a_wrong_command_is_found(line, capsys):
    (command,) = printed.commands(f"```bash\n{line}\n```\n")
    with pytest.raises((InputError, SystemExit, SyntaxError)):
        check(command)


# ------------------------------------------------------------------------------------------------- they run

# Why a command runs with `--help` or `--dry_run` alone.
ONLY_HELP = stored.table(globals(), "only_help")
# Later settings win over printed ones; all that match are added.
SMALLEST = stored.table(globals(), "smallest")
# A tiny model may well be refused, and a ratio of tiny sizes be below its aim.
ACCEPTED = {
    "tfrobust.commands.gate": (0, 3),
    "tools/benchmarks/bench_augmix.py": (0, 1),
    "tools/benchmarks/bench_autoattack.py": (0, 1),
}

RUN_TOOLS: set[tuple] = set()


def reason(command: Command) -> str:
    return next((why for pattern, why in ONLY_HELP.items() if re.search(pattern, str(command))), "")


def as_it_counts(command: Command, arguments: list[str]) -> tuple:
    """Return the program and the flags that count: of those of one name the last, of gin's all."""
    counts = {word if word.startswith("--gin") else word.partition("=")[0]: word for word in arguments}
    return command.program, *sorted(counts.values())


def smallest(command: Command, folder: pathlib.Path) -> list[str]:
    """Return the arguments with the settings that make the command small, and with patterns expanded as by a shell."""
    added = [flags.split() for pattern, flags in SMALLEST.items() if re.search(pattern, f"{command.program} {command}")]
    words = [glob.glob(word, root_dir=folder) if "*" in word else [word] for word in command.arguments]
    return [word for some in (*words, *added) for word in some]


@pytest.mark.rest
@pytest.mark.parametrize(
    "command",
    params(
        printed_command
        for printed_command in COMMANDS
        if printed_command.program not in ("-c", "pytest", "tools/check") and not recipe_of_a_paper(printed_command)
    ),
)
def test_a_command_runs(command, reader):
    arguments = ["--help"] if reason(command) else smallest(command, reader)
    if command.program in ("tfrobust.train", "tfrobust.export"):
        # Of another method or of other data than the command's: it would not publish beside them.
        files_of_command = map(ROOT.joinpath, re.findall(r"gin/[\w/]+\.gin", str(command)))
        texts = str(command) + "".join(path.read_text() for path in files_of_command if path.is_file())
        for export in (reader / "exported").iterdir():
            if f"exported/{export.name}" not in texts:
                shutil.rmtree(export)
    if command.program.startswith("tfrobust."):
        ended = processes.run(f"{command.program}:main", [arguments], cwd=reader)
    elif (counts := as_it_counts(command, arguments)) in RUN_TOOLS:
        return  # the smallest form of another printed command
    else:
        RUN_TOOLS.add(counts)
        path = str(ROOT / command.program)
        ended = processes.run("faults.processes:run_file", [path, arguments, ABSENT], cwd=reader)
    assert ended.code in ACCEPTED.get(command.program, (0,)), ended.err[-2000:]


@pytest.mark.rest
def test_the_scripts_of_a_page_run(reader):
    """`pretrain.py` has run in `equipped`."""
    ended = processes.run("fine_tune:main", [1], cwd=reader)
    assert ended.code == 0 and "trades, evaluated on 360 images" in ended.out, ended.err[-2000:]


@pytest.fixture(scope="module")
def equipped(written) -> pathlib.Path:
    """Return the reader's folder with tiny data and with exports of all names that the commands have."""
    draw = np.random.default_rng(0)
    images = draw.uniform(size=(60, 8, 8, 1)).astype("float32")
    np.savez(written / "my.npz", images=images, labels=np.arange(60) % 10)
    for kind in ("disc", "square", "stripes"):
        for number in range(12):
            png = tf.io.encode_png(draw.integers(0, 256, (32, 32, 3), dtype="uint8"))
            tf.io.write_file(str(written / "my_photos" / kind / f"{number}.png"), png)
    ended = processes.run("pretrain:main", [0], cwd=written)
    assert ended.code == 0, ended.err
    for first, second, more in (
        ("ascl_leaked", "data/npz", ["--gin_param=Npz.path='my.npz'"]),
        ("trades", "data/image_folder", ["--gin_file=gin/models/cnn.gin", "--gin_param=ImageFolder.path='my_photos'"]),
    ):
        flags = [f"--gin_file=gin/{name}.gin" for name in (first, second, "eval/quick")] + more
        flags += [
            "--gin_param=EPOCHS=1",
            "--gin_param=STEPS=1",
            "--gin_param=BATCH_SIZE=8",
            "--gin_param=EPSILON=0.1",
            "--workdir=runs/equipped_" + first,
        ]
        ended = processes.run("tfrobust.train:main", [[*flags, "--gin_param=EVAL_EPSILON=0.03"]], cwd=written)
        assert ended.code == 0, ended.err
    for name in ("adversarial_training", "my_pairing", "noise_consistency", "simclr", "supcon", "supervised"):
        renamed(written / "exported" / "ascl_leaked", name)
    for name in ("photos", "photos_plain", "trades-seed0", "trades-seed1", "supervised-seed0", "supervised-seed1"):
        renamed(written / "exported" / "trades", name)
    shutil.copytree(written / "exported" / "ascl_leaked" / "1", written / "any_saved_model")
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(written / "any_saved_model"), signature_keys=["serving_default"]
    )
    content = converter.convert()
    for name in ("phone.tflite", "model.tflite"):
        (written / name).write_bytes(content)
    renamed(written / "exported" / "ascl_leaked", "ascl_leaked-int8", measured="parity.agreement")
    return written


def renamed(export: pathlib.Path, name: str, measured: str = "") -> None:
    """Copy an export under another name, and its first measurement under the id `measured`."""
    shutil.copytree(export, export.parent / name)
    for path in (export.parent / name).rglob("robustness_report.json"):
        report = json.loads(path.read_text())
        report["model"]["name"] = name
        if measured:
            report["measurements"].append(report["measurements"][0] | {"id": measured})
        path.write_text(json.dumps(report))


@pytest.fixture
def reader(equipped, tmp_path) -> pathlib.Path:
    """Return a copy of the equipped folder, for one command; its files are links, which no command writes into."""
    return pathlib.Path(shutil.copytree(equipped, tmp_path / "reader", copy_function=os.link))
