"""Checks of a version directory that need only TensorFlow; also a program to run in a clean process.

    python -P probe.py DIRECTORY RESULT.json [BYTES]

As a program it refuses every import of tfrobust and of Keras, which proves that the SavedModel does not need them. For
the same reason this module imports nothing of tfrobust; the other modules of this package import it.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import resource
import sys

import numpy as np

REFUSED_PACKAGES = ("tfrobust", "keras", "tf_keras")
EXTRAS = "assets.extra"
SUMS_FILE = f"{EXTRAS}/SHA256SUMS"
GOLDEN_FILE = f"{EXTRAS}/golden.npz"
WARMUP_FILE = f"{EXTRAS}/tf_serving_warmup_requests"
REPORT_FILE = f"{EXTRAS}/robustness_report.json"
# Name of the input by the rank of an example: text, images, clips.
INPUTS = {1: "tokens", 3: "images", 4: "clips"}
SMOOTHED = "serving_smoothed"
# A function of the loaded SavedModel, but no signature, so that no server offers it.
FROM_SEED = "smoothed_from_seed"
ANSWERS = ("class", "radius", "abstain", "seed")
# The seed of the golden outputs of the smoothed classifier.
GOLDEN_SEED = (2019, 1902)
# Unseeded operations: the endpoint of the smoothed classifier has one, and no other endpoint any.
_ENTROPY = "NonDeterministicInts"
PREDICTIONS = ("probabilities", "logits", "embedding")


class RefuseImports(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import hook that finds the refused packages before any other finder, and then fails to import them."""

    def find_spec(self, name, path=None, target=None):
        """Return a spec with this loader for refused packages, None for all others."""
        if name.split(".")[0] not in REFUSED_PACKAGES:
            return None
        # TensorFlow looks up the location of its Keras without importing it, so the origin is a nonexistent path.
        origin = f"/nonexistent/{name}/__init__.py"
        return importlib.machinery.ModuleSpec(name, self, origin=origin, is_package=True)

    def create_module(self, spec):
        """Raise ModuleNotFoundError."""
        raise ModuleNotFoundError(f"{spec.name} is refused in this process.", name=spec.name)

    def exec_module(self, module):
        """Do nothing: never reached, since no module is created."""


def sums_of(directory) -> dict[str, str]:
    """Compute sha256 of every file below `directory` except SHA256SUMS: relative path -> hexadecimal digits."""
    directory = pathlib.Path(directory)
    sums = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and name != SUMS_FILE:
            with open(path, "rb") as file:
                sums[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return sums


def check_sums(directory) -> list[str]:
    """Describe each disagreement between SHA256SUMS and the files of a version directory, one sentence each."""
    try:
        lines = pathlib.Path(directory, SUMS_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        return [f"{SUMS_FILE} cannot be read: {error}."]
    stated = {line[66:]: line[:64] for line in lines}
    actual = sums_of(directory)
    problems = [f"{name} is listed in {SUMS_FILE} but missing." for name in stated.keys() - actual.keys()]
    problems += [f"{name} is not listed in {SUMS_FILE}." for name in actual.keys() - stated.keys()]
    common = stated.keys() & actual.keys()
    problems += [
        f"{name} has been changed: its sha256 is another one." for name in common if stated[name] != actual[name]
    ]
    return sorted(problems)


def read_golden(directory) -> dict[str, np.ndarray]:
    """Read the golden request and its response: `images` (`clips`, `tokens`) and each output, by name."""
    with np.load(pathlib.Path(directory, GOLDEN_FILE), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def request_name(golden: dict) -> str:
    """Return the input name of the golden request: `images`, `clips` or `tokens`."""
    return next(name for name in INPUTS.values() if name in golden)


def differences(golden: dict, outputs: dict, request: str = "golden request") -> list[str]:
    """Describe where outputs are not bit for bit those of the golden response, one sentence each."""
    problems = []
    for name in PREDICTIONS:
        expected, actual = golden[name], np.asarray(outputs[name])
        if expected.shape != actual.shape or expected.dtype != actual.dtype:
            actual_form, expected_form = (f"{array.dtype} {list(array.shape)}" for array in (actual, expected))
            problems.append(f"The {request} returns {name} of {actual_form}, not {expected_form}.")
        elif expected.tobytes() != actual.tobytes():
            largest = np.max(np.abs(expected.astype(np.float64) - actual))
            problems.append(f"The {request} returns other {name}: the largest difference is {largest:.3g}.")
    return problems


def replay_records(directory, signatures) -> list[tuple[str, dict]]:
    """Run each warm-up record against loaded signatures, as TF Serving does before a version takes traffic.

    Returns:
        (signature name, outputs by name as NumPy arrays) per record, in the file's order.

    Raises:
        ValueError: a record is not a predict request for one of the signatures.
    """
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    results: list = []
    for record in tf.data.TFRecordDataset(os.path.join(directory, WARMUP_FILE)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        name = request.model_spec.signature_name
        if log.WhichOneof("log_type") != "predict_log" or name not in signatures:
            raise ValueError(f"Warm-up record {len(results)} calls '{name}', which is no signature here.")
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        outputs = signatures[name](**inputs)
        results.append((name, {key: value.numpy() for key, value in outputs.items()}))
    return results


def inputs_of(image_shape) -> dict[str, str]:
    """Return signature name -> name of its input, for images (h, w, c), clips (t, h, w, c) or text (length,)."""
    decodable = len(image_shape) == 3 and image_shape[-1] in (1, 3, 4)
    encoded = {"serving_bytes": "image_bytes"} if decodable else {}
    return {"serving_default": INPUTS[len(image_shape)], **encoded, "robustness_report": "request"}


def check_signatures(signatures, image_shape) -> list[str]:
    """Describe where the signatures differ from this project's for examples of that shape, one sentence each."""
    import tensorflow as tf

    expected = inputs_of(image_shape)
    number = tf.int32 if len(image_shape) == 1 else tf.float32
    problems = []
    if SMOOTHED in signatures:
        expected[SMOOTHED] = expected["serving_default"]
    if set(signatures) != set(expected):
        problems.append(f"The signatures are {sorted(signatures)}; expected {sorted(expected)}.")
    for name in expected.keys() & set(signatures):
        of_examples = name in ("serving_default", SMOOTHED)
        shape, dtype = ((None, *image_shape), number) if of_examples else ((None,), tf.string)
        inputs = signatures[name].structured_input_signature[1]
        specification = inputs.get(expected[name])
        if len(inputs) != 1 or specification is None or (specification.shape, specification.dtype) != (shape, dtype):
            problems.append(f"'{name}' takes {inputs}; expected '{expected[name]}' {dtype.name} {list(shape)}.")
        outputs = {"robustness_report": {"report"}, SMOOTHED: set(ANSWERS)}.get(name, set(PREDICTIONS))
        if set(signatures[name].structured_outputs) != outputs:
            actual = sorted(signatures[name].structured_outputs)
            problems.append(f"'{name}' returns {actual}; expected {sorted(outputs)}.")
        drawn, expected_draws = entropy_of(signatures[name]), int(name == SMOOTHED)
        if drawn != expected_draws:
            problems.append(f"'{name}' has {drawn} operations {_ENTROPY}; expected {expected_draws}.")
    return problems


def entropy_of(function) -> int:
    """Count the operations that draw from the server's entropy in a concrete function and all that it may call."""
    graph = function.graph.as_graph_def()
    library = {definition.signature.name: definition.node_def for definition in graph.library.function}
    count, waiting = 0, [graph.node]
    seen: set[str] = set()
    while waiting:
        for node in waiting.pop():
            count += node.op == _ENTROPY
            named = {call.name for value in node.attr.values() for call in (value.func, *value.list.func)}
            for name in ({node.op} | named) & library.keys() - seen:
                seen.add(name)
                waiting.append(library[name])
    return count


def golden_seeds(count: int) -> np.ndarray:
    """Return the seeds of the golden outputs of the smoothed classifier, int32 [count, 2]."""
    return np.array([(GOLDEN_SEED[0], GOLDEN_SEED[1] + row) for row in range(count)], np.int32)


def smoothed_answers(loaded, images, seeds) -> dict[str, np.ndarray]:
    """Return the outputs of the smoothed classifier for images [b, ...] for seeds int32 [b, 2], by name."""
    import tensorflow as tf

    answers = getattr(loaded, FROM_SEED)(tf.constant(images), tf.constant(seeds))
    return {name: answers[name].numpy() for name in ANSWERS}


def check_smoothed(loaded, golden) -> list[str]:
    """Replay the smoothed classifier from given seeds: describe what is not reproduced, one sentence each.

    The recorded outputs must be reproduced bit for bit, and so must those of the endpoint for its own seeds, which
    differ from call to call.
    """
    import tensorflow as tf

    name = request_name(golden)
    images = golden[name]
    if f"smoothed_{ANSWERS[0]}" not in golden:
        return [f"{GOLDEN_FILE} has no answers of '{SMOOTHED}'."]
    again = smoothed_answers(loaded, images, golden["smoothed_seed"])
    problems = [
        f"'{SMOOTHED}' does not reproduce the recorded {answer} of its seed."
        for answer in ANSWERS
        if golden[f"smoothed_{answer}"].tobytes() != again[answer].tobytes()
    ]
    endpoint = loaded.signatures[SMOOTHED]
    first, second = ({k: v.numpy() for k, v in endpoint(**{name: tf.constant(images)}).items()} for _ in range(2))
    again = smoothed_answers(loaded, images, first["seed"])
    if any(first[answer].tobytes() != again[answer].tobytes() for answer in ANSWERS):
        problems.append(f"The answer of '{SMOOTHED}' is not that of the seed which it returns.")
    seeds = np.concatenate([first["seed"], second["seed"]])
    if len(np.unique(seeds, axis=0)) < len(seeds):
        problems.append(f"'{SMOOTHED}' used a seed twice.")
    return problems


def check_outputs(directory, signatures, golden) -> dict[str, list[str]]:
    """Replay the golden request, the warm-up file and the report endpoint: check -> problems."""
    import tensorflow as tf

    outputs = signatures["serving_default"](**{request_name(golden): tf.constant(golden[request_name(golden)])})
    problems = {"golden request": differences(golden, outputs)}
    replayed = replay_records(directory, signatures)
    missing = sorted(set(signatures) - {name for name, _ in replayed})
    problems["warm-up"] = [f"No warm-up record calls '{name}'." for name in missing]
    for name, outputs in replayed:
        if name not in ("robustness_report", SMOOTHED):
            problems["warm-up"] += differences(golden, outputs, f"warm-up record of '{name}'")
    path = pathlib.Path(directory, REPORT_FILE)
    expected = path.read_bytes() if path.exists() else b""
    texts = signatures["robustness_report"](request=tf.constant(["", "anything"]))["report"].numpy().tolist()
    problems["report"] = []
    if texts != [expected, expected]:
        problems["report"] = [f"'robustness_report' does not return the text of {REPORT_FILE}."]
    return problems


def check(directory) -> dict[str, list[str]]:
    """Run all checks of a version directory: check -> problems, an empty list if it passed."""
    problems = {"checksums": check_sums(directory)}
    if problems["checksums"]:
        # The remaining checks would run a program that is not the published one.
        return problems
    import tensorflow as tf

    golden = read_golden(directory)
    loaded = tf.saved_model.load(str(directory))
    problems["signatures"] = check_signatures(loaded.signatures, golden[request_name(golden)].shape[1:])
    if not problems["signatures"]:
        problems |= check_outputs(directory, loaded.signatures, golden)
        if SMOOTHED in loaded.signatures:
            problems["smoothed"] = check_smoothed(loaded, golden)
    packages = sorted({name.split(".")[0] for name in sys.modules} & set(REFUSED_PACKAGES))
    problems["clean process"] = [f"{name} was imported by loading the SavedModel." for name in packages]
    return problems


def main(directory: str, result_file: str, largest: str = "") -> None:
    """Write the problems of a version directory as JSON; an exception counts as one.

    Args:
        directory: the version directory.
        result_file: where the problems go.
        largest: the most bytes that this process may take; "" for any.
    """
    if largest:
        resource.setrlimit(resource.RLIMIT_DATA, (int(largest), resource.getrlimit(resource.RLIMIT_DATA)[1]))
    sys.meta_path.insert(0, RefuseImports())
    try:
        problems = check(directory)
    except Exception as error:
        problems = {"loading": [f"{type(error).__name__}: {error}"]}
    pathlib.Path(result_file).write_text(json.dumps(problems), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
