"""Publication of an evaluation: the next version of an export, with the new measurements in its report."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
from collections.abc import Sequence

from tfrobust.common import files, fingerprint
from tfrobust.data.spec import Dataset
from tfrobust.errors import Failure, InputError
from tfrobust.evaluation.doctor.certificates import check_certificates
from tfrobust.evaluation.engine.base import Evaluator, Outcome, Setting
from tfrobust.evaluation.evaluators.adversarial import (
    AccuracyCurve,
    AttackAccuracy,
    attack_settings,
    curve_epsilons,
    settings_of_radii,
)
from tfrobust.report import assembly, reading
from tfrobust.report.renderers import html, markdown
from tfrobust.report.schema import Report, plain
from tfrobust.runs import artifact as artifacts
from tfrobust.runs import publication
from tfrobust.runs import workdir as workdirs
from tfrobust.serving.export import assets, publish


@dataclasses.dataclass(frozen=True)
class Attachment:
    """An export that is to get an evaluation's measurements.

    Attributes:
        base: folder of the model, `exported/<name>`.
        output: folder of the evaluation, which publishes; see `publish.claim`.
    """

    base: pathlib.Path
    output: pathlib.Path

    @classmethod
    def to(cls, model: str, output: str | None) -> Attachment:
        """Return the attachment to a model, before anything is computed.

        Raises:
            InputError: the model is no export of tfrobust, or not its newest version; the folder cannot be written to.
        """
        directory = files.saved_model_directory(pathlib.Path(model)) if pathlib.Path(model).is_dir() else None
        if directory is None or not directory.name.isdecimal() or not (directory / publish.PUBLISHER_FILE).is_file():
            raise InputError(
                f"{model[-100:]} is no published version of tfrobust, so --attach cannot publish its next one: name "
                "exported/NAME, or leave --attach out."
            )
        if output is None:
            raise InputError("attach needs an output, the folder that publishes.")
        newest = publish.versions(directory.parent)[-1]
        if int(directory.name) != newest:
            raise InputError(
                f"{directory} is not the newest version: attached to it, its weights would replace those of version "
                f"{newest}. Name {directory.parent}, or leave --attach out."
            )
        files.check_writable(directory.parent, "--model")
        return cls(directory.parent, pathlib.Path(output))

    def check(
        self, earlier: Report | None, dataset: Dataset, evaluators: Sequence[Evaluator], setting: Setting
    ) -> None:
        """Refuse, before the evaluation, what its report could not be added to.

        Raises:
            InputError: the report is missing, about other weights or other test examples, or it has an attack of the
                same id with other settings, on another number of images, or ended by its time budget.
        """
        if earlier is None or earlier.model["weights_sha256"] != setting.predictor.weights_sha256:
            raise InputError(f"the report of {self.base} is missing or about other weights; export the model again.")
        fingerprint = earlier.data.get("test_fingerprint")
        current = dataset.test.fingerprint if fingerprint else dataset.fingerprint
        if current != (fingerprint or earlier.data["fingerprint"]):
            raise InputError(
                f"the report of {self.base} is about other test examples than these of {dataset.name}: leave --data "
                "or --attach out."
            )
        for evaluator in evaluators:
            before = _earlier_settings(earlier, evaluator)
            for name, value in _asked(evaluator, setting).items() if before else ():
                there, here = before.get(name), plain(value)
                if there != here:
                    raise InputError(
                        f"{evaluator.ids()[0]} is in the report of {self.base} with other settings ({name} is {there} "
                        f"there and {here} here): set {type(evaluator).__name__}.label to have both, or leave "
                        "--attach out."
                    )

    def publish(self, report: Report) -> None:
        """Publish the newest version again, as the next one, with an evaluation's measurements added to its report.

        A process that was killed continues here; measurements that the newest version has are not published twice.

        Raises:
            InputError: another process has published other weights meanwhile; or see `assembly.extended`.
            Failure: the new version does not reproduce the recorded outputs; nothing was published.
        """
        owner, staged = workdirs.make_owner(self.output), self.output / "attached"
        with publish.one_at_a_time(self.base):
            number = publish.versions(self.base)[-1]
            newest = self.base / str(number)
            earlier = artifacts.earlier_report(newest)
            if earlier is None or earlier.model["weights_sha256"] != report.model["weights_sha256"]:
                raise InputError(
                    f"{newest} was published meanwhile and has other weights: it gets no numbers of these."
                )
            extended = assembly.extended(*_jointly_checked(earlier, report))
            if extended is not None:
                added = {"earlier": earlier.run_sha256, "version": newest.name, "added": report.run_sha256}
                run = fingerprint.json_sha256(added)
                number = publish.claim(self.base, owner, run=run)
                with publish.holding(self.base, number, owner):
                    extended = dataclasses.replace(extended, run_sha256=run, model=extended.model | {"version": number})
                    texts = {"report_html": html.render(extended), "report_markdown": markdown.render(extended)}
                    assets.copy_with_report(newest, staged, report_json=extended.to_json(), **texts)
                    problems = publication.problems_of_copy(staged, newest)
                    if problems:
                        raise Failure(f"{self.base} gets no new version: {problems[0]}")
                    publish.publish(staged, self.base, number, owner, run=run)
            elif publish.is_published(self.base, number, owner, run=earlier.run_sha256):
                # By this folder: a kill may have left its claim.
                publish.publish(staged, self.base, number, owner, run=earlier.run_sha256)
        shutil.rmtree(staged, ignore_errors=True)
        note = f"version {newest.name} with these numbers" if extended else "it has these numbers already"
        print(f"SavedModel  {self.base / str(number)}  ({note})")


def _earlier_settings(report: Report, evaluator: Evaluator) -> dict:
    """Return the settings of an attack's accuracy or curve in a report, {} if it has none."""
    if isinstance(evaluator, AttackAccuracy) and (measurement := report.get(evaluator.ids()[0])):
        return {"bound": "none", **measurement.settings, "images": measurement.n}
    if isinstance(evaluator, AccuracyCurve) and (series := report.get_series(evaluator.ids()[0])):
        return {**series.settings, "images": series.columns["n"][0], "epsilons": series.columns["epsilon"]}
    return {}


def _asked(evaluator: AttackAccuracy | AccuracyCurve, setting: Setting) -> dict:
    """Return the settings of an attack's accuracy or curve as `_earlier_settings` returns those of a report."""
    asked = attack_settings(evaluator.attack, setting)
    if isinstance(evaluator, AttackAccuracy):
        ((_, positions),) = evaluator.attacks(setting)
        return asked | {"bound": "none", "images": len(positions)}
    asked["images"] = len(setting.subset(evaluator.limit))
    if not evaluator.attack.minimal:
        asked["epsilons"] = curve_epsilons(evaluator.attack, evaluator.epsilons)
    return settings_of_radii(evaluator.attack, asked)


def _jointly_checked(earlier: Report, later: Report) -> tuple[Report, Report]:
    """Return the reports with one finding on certificates, which attacks of either report can contradict."""
    outcome = Outcome([*earlier.measurements, *later.measurements], [*earlier.series, *later.series])
    joint = check_certificates(outcome, reading.examples_of(earlier.data))
    if joint is None:
        return earlier, later
    doctor = tuple(joint if finding.check == joint.check else finding for finding in earlier.doctor)
    findings = [finding for finding in later.doctor if finding.check != joint.check]
    return dataclasses.replace(earlier, doctor=doctor), dataclasses.replace(later, doctor=(*findings, joint))
