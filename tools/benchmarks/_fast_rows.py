"""The plan of tools/benchmarks/fast_table.py, and the measurement of one of its rows."""

import dataclasses
import pathlib
import tomllib

import digits_table
from _recipes import ROOT, recipe

from tfrobust.errors import InputError

FOLDS = 5
# The files with the two evaluations, by the label of their attack.
EVALUATIONS = {"fast": "gin/eval/fast.gin", "autoattack": "gin/eval/autoattack.gin"}
_BATCH = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A model and the images on which it is attacked.

    Attributes:
        name: distinct in the plan.
        files: gin files of a training on the digits; for weights, with their network.
        fold: the fold of the digits that is tested, and the seed of the training.
        model: an export, or a file with weights; "" for a model that is trained.
        reference: result of `results_table.py` with AutoAttack's outcomes; "" to run AutoAttack.
        epsilon: radius in L-infinity.
        images: number of images from the beginning of the test split.
    """

    name: str
    files: tuple[str, ...] = ("gin/supervised.gin",)
    fold: int = 0
    model: str = ""
    reference: str = ""
    epsilon: float = 0.2
    images: int = 360


def read(path: pathlib.Path) -> list[Row]:
    """Return the rows of a plan.

    Raises:
        InputError: it is missing, no TOML, or has unknown or repeated entries.
    """
    try:
        rows = [Row(**row) for row in tomllib.loads(path.read_text("utf-8"))["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no plan: {error}") from None
    names = [row.name for row in rows]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise InputError(f"{path} has two rows {repeated[0]!r}.")
    return rows


def parts_of(row: Row, attack: str) -> dict:
    """Return the parts of a row's configuration, with the evaluators of an attack."""
    params = [f"EPSILON={row.epsilon}", f"Digits.fold={row.fold}", f"Digits.folds={FOLDS}", f"SEED={row.fold}"]
    return recipe([*row.files, EVALUATIONS[attack]], params)


def opened(row: Row):
    """Return the predictor of a row, trained or read, and its images and labels.

    Raises:
        InputError: the file is missing or no model.
    """
    from tfrobust.data.sources.idx import FashionMnist
    from tfrobust.evaluation.engine import loading
    from tfrobust.runs.evaluation_run import ModelFile
    from tfrobust.security.rehearsal import Use

    parts = parts_of(row, "fast")
    if not row.model:
        dataset = parts["data"].load()
        return loading.from_keras(digits_table.train(parts, dataset, lambda _: None)), *dataset.test.arrays()
    path = row.model if pathlib.Path(row.model).is_absolute() else str(ROOT / row.model)
    file = ModelFile(path=path, encoder=parts["encoder"])
    return file.predictor(Use(batch_size=_BATCH, gradient_batch=_BATCH)), *FashionMnist().load().test.arrays()


def measurements(row: Row) -> dict:
    """Return the outcomes of the attacks of a row that no result has, by the attack's label.

    Raises:
        InputError: as `opened`.
    """
    from tfrobust.evaluation.engine.base import Setting
    from tfrobust.evaluation.evaluators.adversarial import AttackAccuracy
    from tfrobust.evaluation.runner import run_evaluation

    predictor, images, labels = opened(row)
    arrays = {"images": images[: row.images], "labels": labels[: row.images]}
    setting = Setting(predictor=predictor, **arrays, seed=row.fold, batch_size=_BATCH)
    attacks = [attack for attack in EVALUATIONS if attack == "fast" or not row.reference]
    evaluators = {attack: parts_of(row, attack)["evaluators"] for attack in attacks}
    return {
        attack: run_evaluation([item for item in members if isinstance(item, AttackAccuracy)], setting)
        for attack, members in evaluators.items()
    }
