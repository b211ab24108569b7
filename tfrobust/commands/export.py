"""The command `python -m tfrobust.export`: publish the model of a finished run, and its conversions."""

import argparse
import importlib.util
import os
import pathlib
import sys

from tfrobust.commands import evaluate, failures
from tfrobust.commands.flags import Parser
from tfrobust.commands.run import call, configure, operative_text
from tfrobust.common.console import Heartbeat
from tfrobust.common.files import require_model
from tfrobust.errors import InputError

_LITERT_KINDS = ("float32", "float16", "int8")
_EVALUATION = "gin/eval/litert.gin"


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("export", "Publish the trained model of a workdir as a SavedModel, evaluated first if needed.")
    help_text = "workdir of a finished training run; with --model: working folder, default runs/export/NAME"
    flags.add_argument("--workdir", metavar="DIR", help=help_text)
    flags.add_argument("--model", metavar="DIR", help="convert this export, exported/NAME, without its workdir")
    flags.add_argument("--export_dir", metavar="DIR", help="default: exported")
    help_text = f"also publish LiteRT files, each with its own report: some of {', '.join(_LITERT_KINDS)}"
    flags.add_argument("--litert", metavar="KIND,...", type=_kinds, default=(), help=help_text)
    help_text = (
        "also serve the classifier smoothed by Gaussian noise of this deviation, with the endpoint serving_smoothed"
    )
    flags.add_argument("--smoothing", metavar="SIGMA", type=float, help=help_text)
    flags.add_argument("--onnx", action="store_true", help="also publish an ONNX file, with the SavedModel's report")
    help_text = f"evaluation of the LiteRT files; default: {_EVALUATION}. EPSILON, NORM and SEED default to the model's"
    flags.add_argument("--gin_file", action="append", default=[], metavar="FILE", help=help_text)
    help_text = "one value of that evaluation, overrides the files"
    flags.add_argument("--gin_param", action="append", default=[], metavar="'NAME=VALUE'", help=help_text)
    flags.add_gin_import()
    flags.add_allow_downloads()
    return flags


def run(flags: argparse.Namespace) -> None:
    """Publish the model of the workdir, or take an export, and convert it."""
    if not (flags.model or flags.workdir):
        raise InputError("name the --workdir of a finished training run, or a --model to convert.")
    if flags.model and not (flags.litert or flags.onnx):
        raise InputError("--model is published already: name what to convert it to, by --litert or --onnx.")
    if flags.model and flags.export_dir:
        raise InputError("conversions of a --model are published beside it: leave --export_dir out.")
    if flags.model and flags.smoothing is not None:
        raise InputError("--smoothing adds an endpoint to the model of a --workdir; a --model is published already.")
    if (flags.gin_file or flags.gin_param) and not flags.litert:
        raise InputError("--gin_file and --gin_param are about the evaluation of --litert, which is missing.")
    _require_packages(flags)
    if flags.model:
        require_model(flags.model)  # before TensorFlow is imported, which takes seconds
    if flags.litert:  # a mistake in the evaluation must not appear after something was published
        configure(flags.gin_file or [_EVALUATION], flags.gin_param, flags.gin_import, command="evaluate")
    model, folder = flags.model, flags.workdir
    if not model:
        report = _publish(flags)
        if report is None:  # only the chief of several workers publishes
            return
        model = os.path.join(flags.export_dir or "exported", report.model["name"], str(report.model["version"]))
        folder = os.path.join(folder, "conversions")
    if flags.litert or flags.onnx:
        _convert(flags, model, folder)


def _require_packages(flags: argparse.Namespace) -> None:
    """Raise for a missing package before a model is loaded or published."""
    spec = importlib.util.find_spec
    if flags.litert and spec("ai_edge_litert") is None:
        raise InputError("--litert needs the package ai-edge-litert: pip install 'tfrobust[litert]'.")
    if flags.onnx and None in map(spec, ("tf2onnx", "onnxruntime")):
        raise InputError("--onnx needs the packages tf2onnx and onnxruntime: pip install 'tfrobust[onnx]'.")


def _publish(flags: argparse.Namespace):
    """Configure from the gin file in the workdir, and publish; return the report."""
    configuration = pathlib.Path(flags.workdir, "config.gin")
    if not configuration.is_file():
        raise InputError(f"{flags.workdir} has no training run: {configuration.name} is missing.")
    smoothed = ["train.smoothing=@ServedSmoothing()", f"ServedSmoothing.sigma={flags.smoothing}"]
    params = smoothed if flags.smoothing is not None else []
    configure([str(configuration)], params, flags.gin_import, defaults=False)
    return call(
        "train",
        workdir=flags.workdir,
        export_dir=flags.export_dir or "exported",
        training_must_be_done=True,
        configuration=operative_text,
        allow_downloads=flags.allow_downloads,
    )


def _convert(flags: argparse.Namespace, model: str, folder: str | None) -> None:
    from tfrobust import saving
    from tfrobust.runs import conversions  # imports TensorFlow, which --help does not need

    saving.import_all()  # registers the classes that a report may name
    original = conversions.Original.of(model, folder)
    if flags.litert:
        conversions.check_litert(original)  # before the ONNX file is published
    if flags.onnx:
        with Heartbeat("conversion to ONNX"):
            conversions.onnx_file(original)

    def evaluated(file: str, surrogate: str, output: str):
        arguments = [f"--model={file}", f"--surrogate={surrogate}", f"--output={output}"]
        arguments += [f"--gin_file={file}" for file in flags.gin_file or [_EVALUATION]]
        arguments += [f"--gin_param={value}" for value in flags.gin_param]
        arguments += [f"--gin_import={module}" for module in flags.gin_import]
        arguments += ["--allow_downloads"] * flags.allow_downloads
        return evaluate.run(evaluate.parser().parse_args(arguments))

    if flags.litert:
        conversions.litert_files(original, flags.litert, evaluated)


def _kinds(text: str) -> tuple[str, ...]:
    kinds = tuple(dict.fromkeys(text.split(",")))
    unknown = [kind for kind in kinds if kind not in _LITERT_KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0][:20]!r} is none of {', '.join(_LITERT_KINDS)}")
    return kinds


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
