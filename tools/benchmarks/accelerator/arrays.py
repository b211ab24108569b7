"""The parameters of a lowered program, and summaries of its results: needs NumPy alone, on both machines."""

import base64

import numpy as np

SAMPLES = 64


def parameter(entry: dict, number: int) -> np.ndarray:
    """Make a parameter.

    Args:
        entry: its description: `kind`, `shape`, `dtype` and what the kind needs.
        number: of the parameter, its seed.

    Returns:
        The array; bfloat16 as float32.
    """
    generator, shape = np.random.default_rng(number), entry["shape"]
    if entry["kind"] == "images":
        return generator.random(shape, dtype=np.float32)
    if entry["kind"] == "labels":
        return generator.integers(0, entry["classes"], shape).astype(np.int32)
    if entry["kind"] == "drawn":
        value = generator.standard_normal(shape, dtype=np.float32)
        return (
            entry["mean"] + entry["deviation"] * value
            if entry["deviation"]
            else np.full(shape, entry["mean"], np.float32)
        )
    stored = "float32" if entry["dtype"] == "bfloat16" else entry["dtype"]
    return np.frombuffer(base64.b64decode(entry["value"]), stored).reshape(shape)


def training_batch(entries: list[dict], number: int) -> tuple[np.ndarray, np.ndarray]:
    """Make a batch of a training: noisy images of one drawn pattern per class.

    Returns:
        (images, labels).
    """
    generator, (images, labels) = np.random.default_rng(number), entries
    patterns = np.random.default_rng(labels["classes"]).random((labels["classes"], *images["shape"][1:]))
    classes = generator.integers(0, labels["classes"], labels["shape"])
    noisy = (patterns[classes] + generator.random(images["shape"])) / 2
    return noisy.astype(np.float32), classes.astype(np.int32)


def encoded(value: np.ndarray) -> str:
    """Return the bytes of an array in base64; bfloat16 as float32."""
    wide = value.astype(np.float32) if value.dtype.name == "bfloat16" else value
    return base64.b64encode(np.ascontiguousarray(wide).tobytes()).decode()


def summary(value: np.ndarray) -> dict:
    """Summarize a result: shape, type, norm, and up to 64 of its values at drawn positions."""
    flat = np.asarray(value).reshape(-1).astype(np.float64)
    return {
        "shape": list(np.shape(value)),
        "dtype": np.asarray(value).dtype.name,
        "norm": float(np.linalg.norm(flat)),
        "values": flat[positions(flat.size)].tolist(),
    }


def positions(size: int) -> np.ndarray:
    """Return the positions of the values that a summary holds."""
    return np.arange(size) if size <= SAMPLES else np.random.default_rng(size).integers(0, size, SAMPLES)


def difference(value: np.ndarray, expected: dict) -> float:
    """Return the largest difference of a result from a summary, relative to its largest value, but at least to 1e-4.

    Sums that cancel, such as the gradient of a bias before a normalization, are rounding alone. A value that is not a
    number differs by infinity: Python's `max` passes over NaN.
    """
    got = summary(value)
    if got["shape"] != expected["shape"]:
        return float("inf")
    ours, theirs = np.array([*got["values"], got["norm"]]), np.array([*expected["values"], expected["norm"]])
    largest = max(np.abs(theirs[:-1]).max(initial=0.0), 1e-4)
    scale = np.array([*np.full(len(theirs) - 1, largest), max(theirs[-1], 1e-4)])
    worst = float(np.max(np.abs(ours - theirs) / scale, initial=0.0))
    return float("inf") if np.isnan(worst) else worst
