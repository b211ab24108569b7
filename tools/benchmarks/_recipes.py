"""Shared by the tools: the parts of a run from its gin files, without the run, and the state of the code."""

import hashlib
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def source_sha256() -> str:
    """Return the sha256 of the package's Python files, to distinguish results of different states of the code."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "tfrobust").rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def recipe(files: list[str], params: list[str] | tuple = ()) -> dict:
    """Return the arguments that `python -m tfrobust.train` would pass to `runs.experiment.train`.

    Constructors among them (method, encoder, optimizer) look up their arguments when they are called: build the model
    before the next recipe is read.

    Returns:
        argument -> value, without the arguments that come from flags (workdir, ...).

    Raises:
        InputError: any mistake in the configuration.
    """
    from tfrobust.commands.run import configure

    configure(list(files), list(params))
    import gin

    return gin.get_bindings("tfrobust.runs.experiment.train")


def build(parts: dict, image_shape: tuple[int, ...], class_count: int, seed: int):
    """Build and compile the method of a recipe, with the initial weights that the command would give it.

    Args:
        parts: from `recipe`.
        image_shape: (h, w, c).
        class_count: k.
        seed: seed of weights and random draws.

    Returns:
        A built `Method`; its training step is compiled by the loop.
    """
    import keras

    from tfrobust.models.heads.linear import LinearHead
    from tfrobust.training import strategy

    strategy.set_determinism(parts.get("deterministic", "auto"))
    keras.utils.set_random_seed(seed)
    head = parts.get("head", LinearHead)(class_count=class_count)
    method = parts["method"](encoder=parts["encoder"](), head=head, seed=seed)
    method.build((None, *image_shape))
    method.compile(
        optimizer=parts["optimizer"](),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        jit_compile=False,
    )
    return method
