"""Settings of the evaluation and the publication of a run, made of the commands' arguments."""

from __future__ import annotations

import dataclasses
import pathlib

from tfrobust.data.spec import Dataset
from tfrobust.evaluation.doctor.evaluator import Doctor
from tfrobust.evaluation.doctor.full import FullDoctor
from tfrobust.evaluation.engine.base import Evaluator
from tfrobust.evaluation.runner import refuse_clashes, refuse_kind, refuse_radius
from tfrobust.report.gate import Gate
from tfrobust.runs.reference import with_reference
from tfrobust.serving.export.smoothed import ServedSmoothing


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """The evaluation of a run.

    Attributes:
        evaluators: in order.
        attacked_examples: largest number of test examples of every attack or certificate; None: all.
        reference: path of another model's report, which the evaluation repeats; None for none.
    """

    evaluators: tuple[Evaluator, ...] = ()
    attacked_examples: int | None = None
    reference: str | None = None

    @property
    def identity(self) -> dict:
        """The entry that a limit of the attacked examples adds to the identity of a run; {} without one."""
        return {} if self.attacked_examples is None else {"attacked_examples": self.attacked_examples}

    @property
    def has_attacks(self) -> bool:
        """True if an evaluator needs gradients."""
        return any(evaluator not in evaluator.without_gradients() for evaluator in self.evaluators)

    def on(self, dataset: Dataset) -> EvaluationSettings:
        """Return these settings for a data set, with the reference among the evaluators.

        Raises:
            InputError: the reference has no report, or one on other test examples.
        """
        evaluators = with_reference(self.evaluators, self.reference, dataset)
        return dataclasses.replace(self, evaluators=evaluators, reference=None)

    def check_data(self, dataset: Dataset) -> None:
        """Raise InputError if the evaluators do not fit the data, or clash."""
        refuse_clashes(self.evaluators)
        refuse_kind(self.evaluators, dataset.kind)
        refuse_radius(self.evaluators, dataset.image_shape)

    def check_gate(self, gate: Gate) -> None:
        """Raise InputError for requirements that the evaluation cannot meet; evaluators of users may name no ids."""
        gate.check_references()
        ids = [evaluator.ids() for evaluator in self.evaluators if not isinstance(evaluator, (Doctor, FullDoctor))]
        has_doctor = any(isinstance(evaluator, Doctor) for evaluator in self.evaluators)
        if all(ids):
            gate.check_measured([identity for group in ids for identity in group], has_doctor=has_doctor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicationSettings:
    """The publication of a run: its parts, its folder, and its conditions.

    Attributes:
        name: of the model, and of its folder in `export_dir`.
        export_dir: folder in which `<name>/<version>` is published.
        version: number of the version; None takes the next one.
        gate: requirements on the report.
        weights: "last", "best" or "averaged".
        smoothing: the smoothed classifier to serve, too, or None.
        decided: True to publish a model that differs from the newest version or is worse. A gate with requirements
            decides, too.
    """

    name: str
    export_dir: str = "exported"
    version: int | None = None
    gate: Gate = Gate()
    weights: str = "last"
    smoothing: ServedSmoothing | None = None
    decided: bool = False

    @property
    def base(self) -> pathlib.Path:
        """The folder of the model's versions."""
        return pathlib.Path(self.export_dir, self.name)

    @property
    def replaces(self) -> bool:
        """True if the model may replace the newest version, whatever that is."""
        return bool(self.decided or self.gate.require)
