"""What `query` says: predictions with class names, versions and endpoints, as JSON values and as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfrobust.errors import InputError
from tfrobust.serving.client import REPORT, Client
from tfrobust.serving.transport import plain, read_version

# A table shows so many classes of each example, the likeliest first.
SHOWN_CLASSES = 4


def predict(client: Client, names: Sequence[str], images) -> dict:
    """Asks for probabilities and names their classes as the served report does, by number where it does not.

    Returns:
        {"model", "predictions": [{"input", "predicted", "probability", "probabilities": {class: p}}]}; all three are
        None of an example whose probabilities are not finite numbers.

    Raises:
        InputError: the model gives no probabilities.
    """
    outputs = client.predict(images)
    probabilities = outputs.get("probabilities")
    if (
        probabilities is None
        or probabilities.ndim != 2
        or not probabilities.size
        or probabilities.dtype.kind not in "fiu"
    ):
        raise InputError(f"{client.model} gives {sorted(outputs)}, no probabilities [b, k]."[:300])
    probabilities = probabilities.astype(float)
    classes = _class_names(client, probabilities.shape[1])
    predictions = []
    for name, row in zip(names, probabilities, strict=True):
        best = int(row.argmax())
        answer = {"predicted": None, "probability": None, "probabilities": None}
        if np.isfinite(row).all():
            listed = dict(zip(classes, row.tolist(), strict=True))
            answer = {"predicted": classes[best], "probability": float(row[best]), "probabilities": listed}
        predictions.append({"input": name, **answer})
    return {"model": client.model, "predictions": predictions}


def prediction_rows(found: dict) -> list[list[str]]:
    """The rows of a table: the input, its likeliest class, and how likely the first few are."""
    shown = min(SHOWN_CLASSES, max(len(entry["probabilities"] or ()) for entry in found["predictions"]))
    rows = [["input", "predicted", "probability", *["then", *[""] * (2 * shown - 3)][: 2 * (shown - 1)]]]
    for entry in found["predictions"]:
        cells = ["-", "not finite", *([""] * 2 * max(0, shown - 1))]
        if entry["probabilities"] is not None:
            likely = sorted(entry["probabilities"].items(), key=lambda item: -item[1])[:shown]
            cells = [cell for name, share in likely for cell in (plain(name, 24), f"{100 * share:.2f} %")]
        rows.append([plain(entry["input"], 120), *cells])
    return rows


def describe(client: Client) -> dict:
    """The versions that the server has, and the endpoints of the one that answers.

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


def metadata_rows(found: dict) -> list[list[str]]:
    """The rows of a table of the endpoints."""
    rows = [["endpoint", "", "tensor", ""]]
    for name, endpoint in found["endpoints"].items():
        for way, tensors in (("takes", endpoint["inputs"]), ("gives", endpoint["outputs"])):
            rows += [[plain(name, 60), way, plain(key, 60), text] for key, text in tensors.items()]
    return rows


def metadata_heading(found: dict) -> str:
    """One line: which version answers, and which there are."""
    states = ", ".join(f"{entry['version']} {entry['state']}" for entry in found["versions"])
    return plain(f"{found['model']}, version {found['version']} answers (versions: {states})")


def _class_names(client: Client, count: int) -> list[str]:
    names = []
    if REPORT in client.metadata()["signatures"]:
        try:
            names = client.report()["data"]["class_names"] or []
        except (InputError, KeyError, TypeError):
            names = []  # exported without a report, or with one of another program
    known = [plain(name, 80) for name in names] if isinstance(names, list) else []
    return known if len(known) == count == len(set(known)) else [str(number) for number in range(count)]
