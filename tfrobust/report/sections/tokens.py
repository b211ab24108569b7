"""The section on tokens: sentences whose words are colored by feature sensitivity and by true strength."""

from tfrobust.report.blocks import html as page
from tfrobust.report.blocks.html import text
from tfrobust.report.schema import Report
from tfrobust.report.sections import results as section_results
from tfrobust.structs import Measurement

PREFIX = "sensitivity.tokens."
# Per cent of the color for the largest value of a line, chosen so that words stay readable in light and dark mode.
_DEEPEST = 60
_LINES = {"sensitivity": "the model's sensitivity", "strength": "true strength"}
_LEGEND_STEPS = 5
_LEAD = (
    "Sensitivity: how far the features move without a word. Strength: how far the word's sentiment is from neutral."
    " The deeper the colour, the larger, relative to the largest of the line. The correlation is 1 where the features"
    " react to words as strongly as these are."
)


def is_token(measurement: Measurement) -> bool:
    """Return True if a measurement belongs to this section."""
    return measurement.id.startswith(PREFIX)


def tokens(report: Report) -> tuple[str, str] | None:
    """Render the colored sentences, their numbers (collapsed), and the correlations."""
    body = ""
    series = report.get_series("sensitivity.tokens")
    if series is not None and {"sentence", "token", *_LINES} <= series.columns.keys():
        body += _legend() + "".join(_sentence(report, one) for one in _sentences(series.columns))
    numbers = [m for m in report.measurements if is_token(m)]
    if numbers:
        body += section_results.measurement_table(numbers)
    return (_LEAD, body) if body else None


def _sentences(columns: dict) -> list[dict]:
    """Split the columns by sentence, in order."""
    rows: dict = {}
    for row, number in enumerate(columns["sentence"]):
        rows.setdefault(number, []).append(row)
    return [{name: [values[row] for row in own] for name, values in columns.items()} for own in rows.values()]


def _sentence(report: Report, sentence: dict) -> str:
    """Render one sentence twice: colored by sensitivity, and below it by strength."""
    lines = []
    for name, meaning in _LINES.items():
        largest = max((value for value in sentence[name] if value is not None), default=0)
        words = " ".join(
            _word(word, value, value / largest if value and largest else 0.0, meaning)
            for word, value in zip(sentence["token"], sentence[name], strict=True)
        )
        lines.append(f'<p class="tokens"><b>{text(meaning)}</b>{words}</p>')
    rows = [
        [text(word), *(text(_number(sentence[name][place])) for name in _LINES)]
        for place, word in enumerate(sentence["token"])
    ]
    table = page.table(["Word", *_LINES], rows, numeric=(1, 2))
    caption = f"<figcaption>{text(_label(report, sentence))}</figcaption>"
    return f'<figure class="sentence">{caption}{"".join(lines)}{page.details("The numbers", table)}</figure>'


def _word(word: str, value: float | None, depth: float, meaning: str) -> str:
    title = text(f"{word}: {meaning} {_number(value)}")
    return f'<span class="heat" style="background:{_colour(depth)}" title="{title}">{text(word)}</span>'


def _colour(depth: float) -> str:
    return f"color-mix(in srgb,var(--series-0) {_DEEPEST * depth:.0f}%,transparent)"


def _legend() -> str:
    steps = [step / (_LEGEND_STEPS - 1) for step in range(_LEGEND_STEPS)]
    swatches = "".join(f'<span class="heat" style="background:{_colour(step)}">&emsp;</span>' for step in steps)
    return f'<p class="tokens key">nothing {swatches} most of the line</p>'


def _label(report: Report, sentence: dict) -> str:
    """Return the class of a sentence, by its name if there is one."""
    label, classes = (sentence.get("label") or [None])[0], report.data.get("class_names") or []
    if label is None:
        return "A sentence"
    return f"Class: {classes[label] if 0 <= label < len(classes) else label}"


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.3g}"
