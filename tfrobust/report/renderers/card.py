"""The model card of Hugging Face: metadata that programs read, and at most two screens for people.

The metadata are written by the classes of `huggingface_hub` (the extra `hub`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfrobust.common.kinds import kind_of
from tfrobust.errors import InputError
from tfrobust.report import catalog, formats, intervals, reading
from tfrobust.report.catalog.natural import SHIFT
from tfrobust.report.renderers import markdown
from tfrobust.report.schema import Report
from tfrobust.structs import Measurement

_MOST_NAMES = 10
_TASKS = {"text": "text-classification", "images": "image-classification", "clips": "video-classification"}


def render(report: Report, *, repo: str, version: int, shape: Sequence[int], license: str = "unknown") -> str:
    """Render a model card: YAML metadata with the `model-index`, then Markdown.

    The `model-index` has every main measurement with its interval and its settings, such as those of an attack.

    Args:
        report: the report of the model.
        repo: "owner/name" on the Hugging Face Hub.
        version: the number of the version's folder in the repository.
        shape: (h, w, c) of the images, (t, h, w, c) of clips, or (length,) of text.
        license: identifier of the license of the weights, such as "apache-2.0".

    Returns:
        The text of README.md.

    Raises:
        InputError (a ValueError): huggingface_hub is not installed, or the metadata are not valid.
    """
    try:
        from huggingface_hub import ModelCard, ModelCardData
    except ImportError:
        raise InputError("a model card needs the package huggingface_hub: pip install 'tfrobust[hub]'.") from None
    task = _TASKS[kind_of(shape).name]
    main = [measurement for measurement in reading.main_measurements(report) if measurement.value is not None]
    try:
        metadata = ModelCardData(
            library_name="tfrobust",
            license=license,
            pipeline_tag=task,
            tags=["tfrobust", "tensorflow", "saved-model", "robustness", "adversarial-robustness"],
            metrics=["accuracy"],
            model_name=report.model["name"],
            eval_results=[_result(measurement, report, task) for measurement in main],
        )
        body = "\n\n".join(_body(report, main, repo, version, tuple(shape)))
        return str(ModelCard(f"---\n{metadata}\n---\n\n{body}\n"))
    except ValueError as error:
        raise InputError(f"The metadata of the model card are not valid: {' '.join(str(error).split())}") from None


def _result(measurement: Measurement, report: Report, task: str):
    """Return a measurement as an entry of the model-index, which groups entries by task, data set and its config."""
    from huggingface_hub import EvalResult

    entry, name = catalog.read(measurement), report.data["name"]
    fingerprint = report.data.get("test_fingerprint")
    if entry.record is SHIFT:  # the fingerprint is that of the test split
        name, fingerprint = entry.settings["set"], None
    facts = {
        "id": measurement.id,
        "n": measurement.n,
        "low": measurement.low,
        "high": measurement.high,
        "unit": measurement.unit,
    }
    # A smoothed classifier has a setting n, its draws.
    facts |= {f"setting_{key}" if key in facts else key: value for key, value in measurement.settings.items()}
    return EvalResult(
        task_type=task,
        dataset_type=re.sub(r"[^A-Za-z0-9._-]+", "-", name),
        dataset_name=name,
        dataset_config=entry.record.family.other_images or None,
        dataset_split="test",
        dataset_args=_with_values({"fingerprint": fingerprint}) or None,
        metric_type=entry.measure.replace("clean", "accuracy"),
        metric_name=reading.label(measurement),
        metric_value=measurement.value,
        metric_args=_with_values(facts),
    )


def _with_values(facts: dict) -> dict:
    """Drop the entries without a value, which the model-index would lose when it is read again."""
    nested = {name: _with_values(value) if isinstance(value, dict) else value for name, value in facts.items()}
    return {name: value for name, value in nested.items() if value is not None and value != {}}


def _body(report: Report, main: list[Measurement], repo: str, version: int, shape: tuple[int, ...]) -> list[str]:
    extras = f"{version}/assets.extra/robustness_report"
    rows = [["Measurement", "Value", "95 % interval", "n"]]
    rows += [[reading.label(m), formats.number(m), formats.interval(m), "" if m.n is None else m.n] for m in main]
    kinds = intervals.of_each(main)
    findings = [
        f"{finding.verdict}: {finding.check}: {finding.evidence}"
        for finding in report.doctor
        if finding.verdict != "pass"
    ]
    return [
        f"# {markdown.safe(reading.title(report))}",
        *markdown.opened(report),
        "## Intended use",
        markdown.paragraph(_use(report, shape)),
        "## Threat model",
        markdown.paragraph(report.threat),
        "## Results",
        markdown.table(rows, right_columns=(1, 2, 3)),
        *([markdown.paragraph(f"95 % intervals {kinds}.")] if kinds else []),
        *markdown.unmeasured(report),
        f"All numbers, plots and settings are in the report: [HTML]({extras}.html), [Markdown]({extras}.md), "
        f"[JSON]({extras}.json).",
        *(["## Limits"] if report.not_measured or findings else []),
        *(["Not measured:", markdown.listing(report.not_measured)] if report.not_measured else []),
        *(["Found by the checks of the evaluation:", markdown.listing(findings)] if findings else []),
        "## How to load",
        "tfrobust scans the SavedModel before it loads it. It evaluates it on the data that the report names, or with "
        "`--data` on your own:",
        markdown.code(
            f"pip install 'tfrobust[hub]'\ntfrobust evaluate --model=hf://{repo} --gin_file=gin/eval/quick.gin"
        ),
        "TensorFlow alone is enough to predict:",
        markdown.code(_loading(repo, version, shape)).replace("```", "```python", 1),
    ]


def _use(report: Report, shape: tuple[int, ...]) -> str:
    names = report.data.get("class_names") or []
    shown = [*map(str, names[:_MOST_NAMES]), *(["..."] if len(names) > _MOST_NAMES else [])]
    size = " x ".join(map(str, shape))
    kind = {
        "text": f"sentences of up to {size} tokens",
        "images": f"images of {size} pixels in [0, 1]",
        "clips": f"clips of {shape[0]} frames of {' x '.join(map(str, shape[1:]))} pixels in [0, 1]",
    }[kind_of(shape).name]
    classes = f" into {len(names)} classes: {', '.join(shown)}" if names else ""
    method, examples = report.training.get("method"), reading.examples_of(report.data)
    count = report.data.get("train_size")
    on = f"{count} {examples} of the data set {report.data['name']}" if count else f"the data set {report.data['name']}"
    trained = f" It was trained by {method} on {on}." if method else ""
    return (
        f"The model classifies {kind}{classes}.{trained} The results hold for {examples} like those of the test set "
        "and for the perturbations below. Evaluate the model on your own data before you rely on it."
    )


def _loading(repo: str, version: int, shape: tuple[int, ...]) -> str:
    name, kind = kind_of(shape).input, kind_of(shape).dtype
    return f"""import tensorflow as tf
from huggingface_hub import snapshot_download

model = tf.saved_model.load(snapshot_download("{repo}") + "/{version}")
{name} = tf.zeros([1, {", ".join(map(str, shape))}], tf.{kind})  # yours
probabilities = model.signatures["serving_default"]({name}={name})["probabilities"]"""
