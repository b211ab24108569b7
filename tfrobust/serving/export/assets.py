"""Assembly of a version directory: the SavedModel and all files of its `assets.extra/`."""

from __future__ import annotations

import os
import pathlib
import shutil
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfrobust.common.files import SAVED_MODEL_FILE, fsync_directory, fsync_tree, replacing
from tfrobust.errors import Failure
from tfrobust.security import saved_models
from tfrobust.serving.export import golden, probe, publish
from tfrobust.serving.export import saved_model as export

HTML_FILE = f"{probe.EXTRAS}/robustness_report.html"
MARKDOWN_FILE = f"{probe.EXTRAS}/robustness_report.md"


def assemble(
    directory,
    *,
    encoder,
    head,
    image_shape: Sequence[int],
    report_json: str = "",
    report_html: str = "",
    report_markdown: str = "",
    evaluated=None,
    name: str = "model",
    vocabulary: Sequence[str] = (),
    **more,
) -> str:
    """Write a version directory: SavedModel, reports, golden request, warm-up requests, SHA256SUMS.

    It is called twice: once without a report, for the artifact that is evaluated, and once with the report and
    `evaluated`, for the artifact that is published. An existing `directory` is replaced by a rename, so that a
    directory that exists is complete.

    Args:
        directory: path of the version directory; its parent must exist.
        encoder: see `saved_model.write_saved_model`.
        head: see `saved_model.write_saved_model`.
        image_shape: see `saved_model.write_saved_model`.
        report_json: see `saved_model.write_saved_model`.
        report_html: HTML rendering of the report; left out if empty.
        report_markdown: Markdown rendering of the report; left out if empty.
        evaluated: the version directory that was evaluated for the report; None if there is none yet.
        name: the model's name, for the warm-up requests.
        vocabulary: see `saved_model.write_saved_model`.
        **more: `class_names`, `fit`, `interpolation` and `smoothing` of `saved_model.write_saved_model`.

    Returns:
        The weights hash.

    Raises:
        RuntimeError: the SavedModel does not hold the weights of encoder and head, or its weights or golden response
            differ from those of `evaluated`. The directory is then left unchanged.
    """
    directory = pathlib.Path(directory)
    temporary = directory.with_name(f".tmp-{directory.name}")
    old = directory.with_name(f".old-{directory.name}")
    for leftover in (temporary, old):
        if leftover.exists():
            shutil.rmtree(leftover)
    parts = dict(encoder=encoder, head=head, image_shape=image_shape, report_json=report_json, vocabulary=vocabulary)
    export.write_saved_model(temporary, **parts, **more)
    loaded = saved_models.load(temporary)  # also checks that the export passes the library's own scan
    response = golden.record(loaded, image_shape, len(vocabulary))
    weights = export.saved_model_sha256(loaded)
    if weights != export.deployable_sha256(encoder, head):
        raise RuntimeError(f"The SavedModel written to {temporary} does not hold the weights of the live model.")
    if evaluated is not None:
        _check_evaluated(evaluated, weights, response)

    write_reports(temporary, report_json, report_html, report_markdown)
    golden.write(temporary, response)
    write_warmup(
        temporary,
        image_shape=image_shape,
        vocabulary_size=len(vocabulary),
        signatures=list(loaded.signatures),
        name=name,
        fit=more.get("fit", "stretch"),
    )
    publish.write_sums(temporary)
    fsync_tree(temporary)
    _put_in_place(temporary, directory, old)
    return weights


def copy_with_report(version, directory, *, report_json: str, report_html: str, report_markdown: str) -> None:
    """Copy a published version with another report: same weights, endpoints, golden response and warm-up requests.

    Args:
        version: the version directory, which passes `security.saved_models.check`.
        directory: path of the copy; replaced if it exists.
        report_json: the report that the copy's endpoint returns.
        report_html: HTML rendering of the report.
        report_markdown: Markdown rendering of the report.

    Raises:
        InputError: see `saved_model.replace_report`.
        Failure: the version was removed meanwhile.
    """
    directory = pathlib.Path(directory)
    if directory.exists():
        shutil.rmtree(directory)
    try:
        shutil.copytree(version, directory)
    except (FileNotFoundError, shutil.Error) as error:
        shutil.rmtree(directory, ignore_errors=True)
        if pathlib.Path(version, SAVED_MODEL_FILE).is_file():
            raise
        raise Failure(f"{version} was removed while it was copied: run the same command again.") from error
    (directory / publish.PUBLISHER_FILE).unlink(missing_ok=True)
    export.replace_report(directory, report_json)
    write_reports(directory, report_json, report_html, report_markdown)
    publish.write_sums(directory)


def write_warmup(
    directory,
    *,
    image_shape: Sequence[int],
    signatures: Sequence[str],
    name: str = "model",
    vocabulary_size: int = 0,
    fit: int | str = "stretch",
) -> None:
    """Write the warm-up requests, which TF Serving runs before a new version takes traffic, so that no client waits.

    The file is an uncompressed TFRecord with one genuine `PredictionLog` per endpoint.
    The images are the golden ones, as floats and as PNG, and the tokens are the golden ones, so that a replay can be
    checked.

    Args:
        directory: version directory; the file is `assets.extra/tf_serving_warmup_requests`.
        image_shape: (h, w, c), (t, h, w, c) for clips, or (length,) for text.
        signatures: the endpoints of the SavedModel.
        name: the model's name in the server's configuration.
        vocabulary_size: size of the vocabulary, for text.
        fit: that of the endpoint `serving_bytes`, see `data.spec.decode_image`.
    """
    requests = {
        export.PREDICT: lambda: golden.golden_input(image_shape, vocabulary_size),
        export.PREDICT_BYTES: lambda: _golden_files(image_shape, fit),
        # One example: it costs as much as thousands of the others.
        export.SMOOTHED: lambda: golden.golden_input(image_shape, vocabulary_size)[:1],
        export.REPORT: lambda: np.array([b""], dtype=object),
    }
    inputs = probe.inputs_of(image_shape)
    inputs[export.SMOOTHED] = inputs[export.PREDICT]
    path = pathlib.Path(directory, probe.WARMUP_FILE)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
        for signature, make_input in requests.items():
            if signature in signatures:
                log = _prediction_log(name, signature, inputs[signature], make_input())
                writer.write(log.SerializeToString(deterministic=True))


def _golden_files(image_shape: Sequence[int], fit: int | str) -> np.ndarray:
    """Return PNG files that the endpoint decodes to the golden images: where it crops, with a black border."""
    height, width, _ = image_shape
    pixels = golden.golden_pixels(image_shape)
    if isinstance(fit, int):
        # The border of `data.spec.fitted`, whose rounding takes the even number, too.
        top, left = (round((fit - side) / 2) for side in (height, width))
        pixels = np.pad(pixels, ((0, 0), (top, fit - height - top), (left, fit - width - left), (0, 0)))
    return np.array([tf.io.encode_png(image).numpy() for image in pixels], dtype=object)


def _check_evaluated(evaluated, weights: str, response: dict) -> None:
    if export.saved_model_sha256(saved_models.load(evaluated)) != weights:
        raise RuntimeError(f"The weights are not those of {evaluated}, which the report is about.")
    problems = probe.differences(golden.read(evaluated), response)
    if problems:
        raise RuntimeError(
            f"The model does not reproduce the outputs of {evaluated}, which the report is about: {problems[0]}"
        )


def write_reports(directory: pathlib.Path, report_json: str, report_html: str, report_markdown: str) -> None:
    """Write the reports that are not empty into a version directory."""
    texts = {probe.REPORT_FILE: report_json, HTML_FILE: report_html, MARKDOWN_FILE: report_markdown}
    export.write_texts(directory, texts)


def _put_in_place(temporary: pathlib.Path, directory: pathlib.Path, old: pathlib.Path) -> None:
    """Replace `directory` by two renames: between them it is missing, but it is never incomplete."""
    if directory.exists():
        os.rename(directory, old)
    os.rename(temporary, directory)
    fsync_directory(directory.parent)
    if old.exists():
        shutil.rmtree(old)


def _prediction_log(name: str, signature: str, input_name: str, value: np.ndarray):
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    request.model_spec.signature_name = signature
    request.inputs[input_name].CopyFrom(tf.make_tensor_proto(value))
    return prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog(request=request))
