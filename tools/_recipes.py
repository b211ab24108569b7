"""What the tools share: a run's parts, as its gin files say, without the run."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def recipe(files: list[str], params: list[str] | tuple = ()) -> dict:
    """The arguments that `python -m tfrobust.train` would give to `experiment.train`.

    Constructors among them (method, encoder, optimizer) look their arguments up when they are called: build the
    model before the next recipe is read.

    Args:
        files, params: the values of --gin_file and --gin_param.

    Returns:
        argument -> value; what flags would give (workdir, ...) is not among them.

    Raises:
        InputError: any mistake in the configuration.
    """
    from tfrobust import cli

    cli.configure(list(files), list(params))
    import gin

    return gin.get_bindings("tfrobust.experiment.train")


def build(parts: dict, image_shape: tuple[int, ...], class_count: int, seed: int):
    """The compiled method of a recipe, with the initial weights that the command would give it.

    Args:
        parts: of `recipe`.
        image_shape: (h, w, c).
        class_count: k.
        seed: of weights and draws.

    Returns:
        A built `Method`; its training step is compiled by the loop.
    """
    import keras

    from tfrobust.models.heads import LinearHead
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
