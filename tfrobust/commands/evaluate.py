"""The command `python -m tfrobust.evaluate`: evaluate an export, any other SavedModel, or a `.keras` file."""

import argparse
import functools
import json
import math
import os
import pathlib
import re
import sys

from tfrobust.commands import failures, supervised
from tfrobust.commands.configuration.files import joined_stems
from tfrobust.commands.configuration.statements import shown
from tfrobust.commands.flags import Parser, budget
from tfrobust.commands.run import call, operative_text, prepare
from tfrobust.common.files import LITERT_FILE, check_writable, expanded, read_bounded, require_model
from tfrobust.errors import InputError
from tfrobust.serving import hub

# The knobs of a threat in the configuration of a report, as they stand in its JSON, where line breaks are escaped.
_KNOBS = re.compile(rb"\\n((?:EVAL_)?(?:EPSILON|NORM)) = ([0-9.e-]+|'l(?:inf|2|1)')(?=\\n)")
# Data whose radius has no default.
_OPEN = (b"ImageFolder", b"Npz", b"TensorFlowDatasets", b"Cifar", b"FashionMnist", b"Mnist", b"Idx")


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("evaluate", "Measure how robust a model is: an export, any SavedModel, any .keras or .tflite file.")
    flags.add_argument(
        "--model",
        metavar="DIR|FILE.keras|FILE.tflite|hf://OWNER/NAME",
        required=True,
        help="the model; weights from PyTorch (.safetensors, .npz) need the --gin_file of a network, from gin/models",
    )
    flags.add_argument(
        "--data",
        metavar="NAME|FILE.npz|DIR",
        help="images in [0, 1] and labels; default: the data and split that the export's report names",
    )
    flags.add_gin_flags("gin/eval/pgd.gin")
    help_text = (
        "another model of the same classes, which transfer attacks search: what a .tflite file was converted from"
    )
    flags.add_argument("--surrogate", metavar="DIR|FILE|hf://OWNER/NAME", help=help_text)
    flags.add_argument("--logits_output", metavar="NAME", help="which output of a foreign model holds the logits")
    flags.add_argument(
        "--signature", metavar="NAME", help="signature of a foreign SavedModel; default: serving_default"
    )
    help_text = "a foreign model takes images [b, c, h, w], channels first"
    flags.add_argument("--channels_first", action="store_true", help=help_text)
    help_text = (
        "range of pixels that a foreign model takes, such as 0,255; data and EPSILON stay in [0, 1]; default: 0,1"
    )
    flags.add_argument("--bounds", metavar="LOW,HIGH", type=_bounds, default=(0.0, 1.0), help=help_text)
    help_text = (
        "report (JSON, HTML, Markdown) and stored results, to resume from; default: runs/evaluate/<model>/<gin files>"
    )
    flags.add_argument("--output", metavar="DIR", help=help_text)
    flags.add_argument(
        "--shard", metavar="I/N", type=_shard, help="compute share I of N only; when all are done, run without it"
    )
    flags.add_verbosity()
    help_text = "print what the attacks cost at most, after model and data were loaded, and stop"
    flags.add_argument("--dry_run", action="store_true", help=help_text)
    flags.add_budget()
    help_text = "publish the next version of the export, with these numbers added to its report"
    flags.add_argument("--attach", action="store_true", help=help_text)
    return flags


def run(flags: argparse.Namespace):
    """Configure and start the evaluation; return its report."""
    if flags.attach and flags.model.startswith(hub.SCHEME):
        raise InputError(f"--attach publishes beside an export on this machine, and {flags.model[:100]} is on the Hub.")
    for path in filter(None, (flags.model, flags.surrogate)):
        if not path.startswith(hub.SCHEME):
            require_model(path)  # before TensorFlow is imported, which takes seconds
    output = flags.output or default_output(flags.model, flags.gin_file)
    check_writable(output, "--output")
    supervised.continue_in_child(flags.model)
    source, settings = _radius(flags)
    prepare(flags, "evaluate", source, settings)
    _announce(flags, settings)
    # gin may name the data too, so the flag is passed only if given.
    data = {} if flags.data is None else {"data": _source(flags.data)}
    return call(
        "evaluate",
        allow_downloads=flags.allow_downloads,
        model=hub.local(flags.model),
        logits_output=flags.logits_output,
        signature=flags.signature,
        channels_first=flags.channels_first,
        bounds=flags.bounds,
        surrogate=flags.surrogate and hub.local(flags.surrogate),
        output=output,
        shard=flags.shard,
        verbose=flags.verbose,
        attach=flags.attach,
        dry_run=flags.dry_run,
        budget=budget(parser(), flags, "evaluate"),
        configuration=operative_text,
        **data,
    )


def default_output(model: str, gin_files: list[str]) -> str:
    """Return `runs/evaluate/<model>/<gin files>`, in which an evaluation without --output keeps its results.

    Versions of an export share a folder, since its stored results name the weights; so do the SavedModels of a workdir.

    Args:
        model: the value of --model. The last part of its path is taken, without a version's number, without `staged`
            or `final` of a workdir, and without the suffix of a file. A `model.tflite` has the name of its folder.
        gin_files: the values of --gin_file; their names are joined by `_`.
    """
    path = pathlib.PurePath(os.path.abspath(model))
    if path.name == LITERT_FILE:  # the name of every LiteRT export's file
        path = path.parent
    while path.name.isdecimal() or path.name in ("staged", "final"):
        path = path.parent
    name = path.stem if path.suffix in (".keras", ".npz", ".safetensors", ".tflite") else path.name
    return os.path.join("runs", "evaluate", name[:100] or "model", joined_stems(gin_files)[:100])


class _Share(tuple):
    """A share (i, n), with the text i/n that the flag takes."""

    def __str__(self) -> str:
        return "/".join(map(str, self))


def _shard(text: str) -> _Share:
    number, _, count = text.partition("/")
    if not (number.isascii() and number.isdecimal() and count.isascii() and count.isdecimal() and len(text) < 20):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not I/N, such as 1/4")
    return _Share((int(number), int(count)))


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)):
        raise argparse.ArgumentTypeError(f"{text[:20]!r} is not LOW,HIGH, such as 0,255")
    return low, high


def _radius(flags: argparse.Namespace) -> tuple[str, list[str]]:
    """Return where EPSILON and NORM come from if the default of the embedded data means nothing.

    Returns:
        The flag that names data for which EPSILON must be set, "" if it need not be; and the settings of the model's
        own report.
    """
    from tfrobust.report.assembly import ADDED  # imports NumPy, which --help does not need
    from tfrobust.report.comparison.reports import find_report

    # A file without a report is evaluated on the data and within the radius of its surrogate.
    report = find_report(hub.local(flags.model))
    report = report or (flags.surrogate and find_report(hub.local(flags.surrogate)))
    document = read_bounded(report) if report else b""
    # Not those of evaluations that --attach added.
    training, _, _ = document.partition(json.dumps(ADDED)[1:-1].encode())
    knobs = {knob.decode(): value.decode() for knob, value in _KNOBS.findall(training + rb"\n")}
    knobs = {knob: knobs.get(f"EVAL_{knob}", knobs.get(knob)) for knob in ("EPSILON", "NORM")}
    settings = [f"{knob}={value}" for knob, value in knobs.items() if value is not None]
    is_open = any(b"tfrobust>" + kind in document for kind in _OPEN)
    if flags.data is not None:
        source = "" if flags.data == "digits" else f"--data={shown(flags.data, 40, quote=False)}"
    else:
        source = f"--model={shown(flags.model, 40, quote=False)}" if is_open else ""
    return "" if knobs["EPSILON"] is not None else source, settings


def _announce(flags: argparse.Namespace, settings: list[str]) -> None:
    """Print the settings that come from the model's own report, unless flags replace them."""
    replaced = {param.partition("=")[0].strip().removeprefix("EVAL_") for param in flags.gin_param}
    settings = [setting for setting in settings if setting.partition("=")[0] not in replaced]
    if settings and flags.verbose:
        print(
            f"radius      {' and '.join(settings)} unless a gin file says otherwise, from the model's report",
            flush=True,
        )


def _source(text: str):
    """Return the data source of --data: a file, a folder, or a name (`digits`, `fashion_mnist`, or one of TFDS).

    For an image folder, return the constructor, which still needs the model's input size.
    """
    from tfrobust.data.sources import cifar, digits, folder, idx, npz, tfds

    path = expanded(text)
    if text == "digits":
        return digits.Digits()
    if text == "fashion_mnist":
        return idx.FashionMnist()
    if idx.is_idx_folder(path):
        return idx.Idx(path=text)
    if path.suffix == ".npz":
        return npz.Npz(path=text, test_size=1.0)
    if path.name.endswith(".tar.gz") or cifar.is_cifar_folder(path):
        return cifar.Cifar(path=text)
    if path.is_dir() and not tfds.is_prepared(path):
        return functools.partial(folder.ImageFolder, path=text, test_size=1.0)
    return tfds.TensorFlowDatasets(dataset=text)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
