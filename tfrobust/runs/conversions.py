"""Publication of a model's conversions for other runtimes: LiteRT files with their own report, and ONNX files."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable, Sequence

import numpy as np

from tfrobust.common import files, fingerprint
from tfrobust.common.console import Heartbeat
from tfrobust.common.kinds import IMAGES
from tfrobust.data.spec import Dataset
from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading
from tfrobust.evaluation.engine import predictor as predictors
from tfrobust.report import catalog
from tfrobust.report.catalog.outputs import PARITY
from tfrobust.report.comparison.reports import REPORT_FILE
from tfrobust.report.renderers import html, markdown
from tfrobust.report.schema import Report
from tfrobust.runs import artifact as artifacts
from tfrobust.runs import workdir as workdirs
from tfrobust.security import rehearsal
from tfrobust.serving.export import assets, litert, onnx, publish
from tfrobust.structs import Measurement

_REPRESENTATIVE = 500  # training images, from which int8 takes the ranges of its activations
_COMPARED = 1000  # test images on which a file is compared with the SavedModel
# Smallest share of these images on which both must predict the same class. A wrong scale converts without an error and
# leaves about the share of guessing; the report states the share that was found.
_LEAST_AGREEMENT = {"float32": 0.98, "float16": 0.95, "int8": 0.7, "onnx": 0.98}
_SOURCE_FILE = "source.json"


@dataclasses.dataclass(frozen=True)
class Original:
    """A published SavedModel that is converted.

    Attributes:
        directory: its version folder.
        report: the report in it.
        folder: working folder of its conversions.
    """

    directory: pathlib.Path
    report: Report
    folder: pathlib.Path

    @classmethod
    def of(cls, model: str, folder: str | None = None) -> Original:
        """Return the original at `exported/NAME` or at one of its versions.

        Raises:
            InputError: it is no SavedModel with a report.
        """
        path = pathlib.Path(model)
        directory = files.saved_model_directory(path) if path.is_dir() else path
        if directory.parent.name in ("", ".."):  # named from inside its folder, as "1"
            directory = pathlib.Path(os.path.abspath(directory))
        report = artifacts.earlier_report(directory)
        if report is None or not directory.name.isdecimal():
            raise InputError(f"{model[-100:]} is no export of tfrobust with a report: name exported/NAME.")
        folder = folder or os.path.join("runs", "export", directory.parent.name)
        files.check_writable(folder, "--workdir")
        files.check_writable(directory.parent.parent, "--model")
        return cls(directory, report, pathlib.Path(folder))

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.directory.parent.name

    @functools.cached_property
    def predictor(self) -> predictors.Predictor:
        """The SavedModel as a predictor."""
        return loading.from_saved_model(str(self.directory))

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The data that the report names."""
        return artifacts.named_source(str(self.directory), self.report).load()

    @functools.cached_property
    def representative(self) -> np.ndarray:
        """Training images drawn without replacement, always the same ones."""
        train = self.dataset.train
        rows = np.random.default_rng(0).permutation(len(train))[:_REPRESENTATIVE]
        images, _ = train.take(np.sort(rows)).arrays()
        return images

    @functools.cached_property
    def compared(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Test examples spread evenly over the split, their labels, and the SavedModel's logits."""
        examples, labels = self.dataset.test.arrays(_COMPARED)
        return examples, labels, predictors.in_batches(self.predictor.compiled_logits, examples, 128)


def check_litert(original: Original) -> None:
    """Raise for a model of which no LiteRT file is made.

    Raises:
        InputError: the model is one of text or of mixed precision.
    """
    precision = original.report.training.get("precision", "float32")
    if precision != "float32":
        raise InputError(
            f"{original.name} was trained in {str(precision)[:20]}, and LiteRT files need train.precision = 'float32': "
            "train it in that, or leave --litert out."
        )
    kind = original.predictor.kind
    if kind is not IMAGES:
        raise InputError(
            f"{original.name} takes {kind.input}; LiteRT files are made of models of images: leave --litert out."
        )


def litert_files(original: Original, kinds: Sequence[str], evaluate: Callable[[str, str, str], Report]) -> None:
    """Convert a SavedModel to LiteRT files, evaluate each file, and publish it with its own report.

    All kinds are converted and compared before the first is evaluated. A run that was killed resumes; a file whose
    report is published already is not published again.

    Args:
        original: the SavedModel.
        kinds: of `serving.export.litert.KINDS`.
        evaluate: (folder of the file, folder of the SavedModel, output) -> report of the file.

    Raises:
        InputError: as `check_litert`, or the model cannot be converted, or a file predicts other classes.
    """
    check_litert(original)
    converted = {kind: _converted(original, kind) for kind in kinds}
    for kind, (folder, parity) in converted.items():
        output = original.folder / "evaluation" / folder.name
        report = evaluate(str(folder), str(original.directory), str(output))
        content = (folder / files.LITERT_FILE).read_bytes()
        facts = {"format": "LiteRT", "kind": kind}
        _publish(original, folder.name, files.LITERT_FILE, content, report, parity, facts)


def onnx_file(original: Original) -> None:
    """Convert a SavedModel to an ONNX file, and publish it with the SavedModel's report.

    Raises:
        InputError: the model cannot be converted, or the file predicts other classes.
    """
    content = onnx.convert(original.directory)
    examples, _, _ = original.compared
    logits = predictors.in_batches(lambda batch: onnx.run(content, batch.numpy(), "logits"), examples, 128)
    parity = _parity(original, "onnx", logits)
    note = (
        f"The numbers are those of the SavedModel, version {original.directory.name} of {original.name}. The ONNX file "
        f"was only compared with it, on {len(examples)} test {original.predictor.kind.examples}."
    )
    report = dataclasses.replace(original.report, not_measured=(note, *original.report.not_measured))
    _publish(original, f"{original.name}-onnx", onnx.FILE, content, report, parity, {"format": "ONNX"})


def _converted(original: Original, kind: str) -> tuple[pathlib.Path, tuple[Measurement, ...]]:
    """Return the folder that holds the file of a kind, converted unless it is there, and its parity."""
    folder = original.folder / f"{original.name}-{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    path, record = folder / files.LITERT_FILE, folder / _SOURCE_FILE
    source = json.dumps({"weights": original.predictor.weights_sha256, "images": original.dataset.fingerprint})
    if not path.is_file() or not record.is_file() or files.read_bounded(record).decode(errors="replace") != source:
        record.unlink(missing_ok=True)
        with Heartbeat(f"conversion to LiteRT, {kind}"):
            content = litert.convert(original.directory, kind, original.representative)
        files.write_atomically(path, content)
        rehearsal.remember(path)
        # Last, so that a folder with this file is complete.
        files.write_atomically(record, source)
    # The evaluation of the file finds here how it was trained, and its name.
    model = original.report.model | {"name": folder.name, "version": None}
    files.write_atomically(folder / REPORT_FILE, dataclasses.replace(original.report, model=model).to_json())
    examples, _, _ = original.compared
    logits = predictors.in_batches(loading.load(str(folder), "logits").compiled_logits, examples, 128)
    return folder, _parity(original, kind, logits)


def _parity(original: Original, kind: str, logits: np.ndarray) -> tuple[Measurement, ...]:
    """Return how a file's logits differ from the SavedModel's.

    Raises:
        InputError: it predicts other classes for too many examples.
    """
    _, labels, expected = original.compared
    agrees = np.argmax(logits, axis=-1) == np.argmax(expected, axis=-1)
    agreement, least = float(np.mean(agrees)), _LEAST_AGREEMENT[kind]
    if not np.all(np.isfinite(logits)) or agreement < least:
        raise InputError(
            f"{original.name} is not published as {kind}: the file predicts the class of the SavedModel for "
            f"{agreement:.1%} of {len(agrees)} test examples, and at least {least:.0%} is required. Its training "
            "images may have another scale."
        )
    gaps, settings = np.abs(logits - expected), {"reference": f"{original.name}/{original.directory.name}"}
    accuracies = [float(np.mean(np.argmax(outputs, axis=-1) == labels)) for outputs in (expected, logits)]
    values = {
        "agreement": (agreement, "fraction"),
        "accuracy_change": (accuracies[1] - accuracies[0], "fraction"),
        "largest_gap": (float(gaps.max()), "logits"),
        "mean_gap": (float(gaps.mean()), "logits"),
    }
    return tuple(
        Measurement(PARITY.id(name), value, unit, n=len(agrees), settings=settings)
        for name, (value, unit) in values.items()
    )


def _publish(original: Original, name: str, file: str, content: bytes, report: Report, parity, facts: dict) -> None:
    """Publish a file with a report as the next version of `exported/<name>`, unless it is one already."""
    original.folder.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256(content).hexdigest()
    base, staged = original.directory.parent.parent / name, original.folder / "final" / name
    # Not the bytes: tf2onnx gives the same model other names each time. A LiteRT file is part of its report's hash.
    origin = {"file": file, "report": report.run_sha256, "original": original.report.model["weights_sha256"]}
    run = fingerprint.json_sha256(origin)
    with publish.one_at_a_time(base):
        owner = workdirs.make_owner(original.folder)
        number = publish.claim(base, owner, run=run)
        is_published = publish.is_published(base, number, owner, run=run)
        if not is_published:
            with publish.holding(base, number, owner):
                model = report.model | {"name": name, "version": number, "weights_sha256": sha256}
                model |= facts | {
                    "bytes": len(content),
                    "converted_from": f"{original.name}/{original.directory.name}",
                }
                remaining = tuple(
                    measurement for measurement in report.measurements if catalog.read(measurement).record is not PARITY
                )
                report = dataclasses.replace(report, model=model, measurements=remaining + parity, run_sha256=run)
                report.validate()
                shutil.rmtree(staged, ignore_errors=True)
                staged.mkdir(parents=True)
                (staged / file).write_bytes(content)
                texts = {"report_html": html.render(report), "report_markdown": markdown.render(report)}
                assets.write_reports(staged, report_json=report.to_json(), **texts)
                publish.publish(staged, base, number, owner, run=run)
            shutil.rmtree(staged)
    agreement = parity[0]
    parity_text = f"same class as the SavedModel for {agreement.value:.1%} of {agreement.n} test examples"
    note = "  (published by this run before)" if is_published else ""
    print(f"{facts['format']:<11} {base / str(number) / file}{note}: {len(content):,} bytes, {parity_text}")
    print(f"report      {base / str(number) / assets.HTML_FILE}")
