"""The output of `query`: predictions with class names, versions and endpoints, as JSON values and as table rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrobust.errors import InputError
from tfrobust.serving.client import REPORT, Client
from tfrobust.serving.client.transport import ServerUnavailable, plain, read_version

# Number of classes that a table shows per example, the most probable first.
SHOWN_CLASSES = 4


def predict(client: Client, names: Sequence[str], images) -> dict:
    """Request probabilities and label them with the class names of the served report, or with numbers without one.

    Returns:
        {"model", "predictions": [{"input", "predicted", "probability", "probabilities": {class: p}}]}. The last three
        are None for an example whose probabilities are not finite.

    Raises:
        InputError: the model returns no probabilities.
    """
    outputs = client.predict(images)
    probabilities = outputs.get("probabilities")
    if (
        probabilities is None
        or probabilities.ndim != 2
        or not probabilities.size
        or probabilities.dtype.kind not in "fiu"
    ):
        raise InputError(f"{client.model} returns {sorted(outputs)}, no probabilities [b, k].")
    if len(probabilities) != len(names):
        raise InputError(
            f"{client.model} takes the array of {len(names)} rows as {len(probabilities)} examples; one clip has five "
            "axes, [1, t, h, w, c], or the name clips in an .npz file."
        )
    probabilities = probabilities.astype(float)
    classes = _class_names(client, probabilities.shape[1])
    predictions = []
    for name, row in zip(names, probabilities, strict=True):
        best = int(row.argmax())
        entry: dict[str, Any] = {"predicted": None, "probability": None, "probabilities": None}
        if np.isfinite(row).all():
            listed = dict(zip(classes, row.tolist(), strict=True))
            entry = {"predicted": classes[best], "probability": float(row[best]), "probabilities": listed}
        predictions.append({"input": name, **entry})
    return {"model": client.model, "predictions": predictions}


def smoothed(client: Client, names: Sequence[str], images) -> dict:
    """Request the outputs of the smoothed classifier and label them as `predict` does.

    Returns:
        {"model", "smoothed": [{"input", "predicted", "radius", "abstains", "seed"}]}; `predicted` is None where it
        abstains.

    Raises:
        InputError: the model has no smoothed classifier.
        ServerUnavailable: the answers are none of a smoothed classifier.
    """
    answers = client.smoothed(images)
    dtype_kinds = {"class": "iu", "radius": "f", "abstain": "b", "seed": "iu"}
    fits = all(answers[name].dtype.kind in kinds for name, kinds in dtype_kinds.items())
    shapes = {name: answers[name].shape for name in dtype_kinds}
    count = len(names)
    expected = {"class": (count,), "radius": (count,), "abstain": (count,), "seed": (count, 2)}
    if not fits or shapes != expected or not np.isfinite(answers["radius"]).all():
        raise ServerUnavailable(f"The answers of {client.model} are none of a smoothed classifier.")
    classes = _class_names(client, None)
    entries = []
    for row, name in enumerate(names):
        number, abstains = int(answers["class"][row]), bool(answers["abstain"][row])
        predicted = classes[number] if 0 <= number < len(classes) else str(number)
        entry = {"predicted": None if abstains else predicted, "radius": float(answers["radius"][row])}
        entries.append({"input": name, **entry, "abstains": abstains, "seed": answers["seed"][row].tolist()})
    return {"model": client.model, "smoothed": entries}


def smoothed_rows(answers: dict) -> list[list[str]]:
    """Return table rows: the input, its class, the certified radius, rounded down, and the seed of the noise."""
    rows = [["input", "smoothed", "radius", "seed"]]
    for entry in answers["smoothed"]:
        predicted = "abstains" if entry["abstains"] else plain(entry["predicted"], 24)
        radius = "-" if entry["abstains"] else f"{math.floor(1000 * entry['radius']) / 1000:.3f}"
        rows.append([plain(entry["input"], 120), predicted, radius, " ".join(map(str, entry["seed"]))])
    return rows


def prediction_rows(answers: dict) -> list[list[str]]:
    """Return table rows: the input, its most probable class, and the probabilities of the first few classes."""
    shown = min(SHOWN_CLASSES, max(len(entry["probabilities"] or ()) for entry in answers["predictions"]))
    rows = [["input", "predicted", "probability", *["then", *[""] * (2 * shown - 3)][: 2 * (shown - 1)]]]
    for entry in answers["predictions"]:
        cells = ["-", "not finite", *([""] * 2 * max(0, shown - 1))]
        if entry["probabilities"] is not None:
            likely = sorted(entry["probabilities"].items(), key=lambda item: -item[1])[:shown]
            cells = [cell for name, share in likely for cell in (plain(name, 24), f"{100 * share:.2f} %")]
        rows.append([plain(entry["input"], 120), *cells])
    return rows


def describe(client: Client) -> dict:
    """Return the versions on the server and the endpoints of the version that handles requests.

    Returns:
        {"model", "version", "versions": [{"version", "state"}], "endpoints": {name: {"inputs", "outputs"}}}, tensors as
        text such as "float32 [b, 8, 8, 1]".
    """
    metadata = client.metadata()
    versions = [{"version": read_version(e) or 0, "state": plain(e.get("state"), 40)} for e in client.status()]
    endpoints = {
        plain(name): {
            "inputs": {plain(key): str(tensor) for key, tensor in signature.inputs.items()},
            "outputs": {plain(key): str(tensor) for key, tensor in signature.outputs.items()},
        }
        for name, signature in metadata["signatures"].items()
    }
    return {"model": client.model, "version": metadata["version"], "versions": versions, "endpoints": endpoints}


def metadata_rows(description: dict) -> list[list[str]]:
    """Return table rows of the endpoints: one per input and output tensor."""
    rows = [["endpoint", "", "tensor", ""]]
    for name, endpoint in description["endpoints"].items():
        for way, tensors in (("takes", endpoint["inputs"]), ("gives", endpoint["outputs"])):
            rows += [[plain(name, 60), way, plain(key, 60), text] for key, text in tensors.items()]
    return rows


def metadata_heading(description: dict) -> str:
    """Return one line with the version that handles requests and all versions with their states."""
    states = ", ".join(f"{entry['version']} {entry['state']}" for entry in description["versions"])
    return plain(f"{description['model']}, version {description['version']} is served (versions: {states})")


def _class_names(client: Client, count: int | None) -> list[str]:
    """Return the class names of the served report; numbers if it has none, or (for a known count) another number."""
    names: list[str] = []
    if REPORT in client.metadata()["signatures"]:
        try:
            names = client.report()["data"]["class_names"] or []
        except (InputError, KeyError, TypeError):
            names = []  # exported without a report, or with a report of another program
    printable = [plain(name, 80) for name in names] if isinstance(names, list) else []
    fits = count in (None, len(printable)) and len(printable) == len(set(printable))
    return printable if fits else [str(number) for number in range(count or 0)]
