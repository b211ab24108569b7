"""The section on tokens: sentences whose words are colored by feature sensitivity and by true strength."""

from tfrobust.report import catalog
from tfrobust.report.blocks import Block, Numbers, Words
from tfrobust.report.catalog.features import TOKENS
from tfrobust.report.parts import has_numbers
from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section, columns_of

_LINES = {"sensitivity": "the model's sensitivity", "strength": "true strength"}


class Tokens(Section):
    """The colored sentences with their numbers, and the correlations."""

    anchor = "tokens"
    heading = "Sensitivity to words"
    lead = (
        "Sensitivity: how far the features move if the word is removed. Strength: how far the sentiment of the word is"
        " from neutral. The darker the color, the larger the value relative to the largest of the line. The correlation"
        " is 1 if the features are as sensitive to words as these are strong."
    )

    def blocks(self) -> list[Block]:
        """Return the sentences and the numbers."""
        columns = columns_of(self.report, "sensitivity.tokens", "sentence", "token", *_LINES)
        columns = columns if has_numbers(self.report.get_series("sensitivity.tokens"), "sentence", *_LINES) else {}
        rows: dict = {}
        for row, number in enumerate(columns.get("sentence", ())):
            rows.setdefault(number, []).append(row)
        sentences = []
        for positions in rows.values():
            lines = {
                title: [(columns["token"][row], columns[name][row]) for row in positions]
                for name, title in _LINES.items()
            }
            sentences.append(
                Words(_caption(self.report, columns.get("label", [None] * (positions[0] + 1))[positions[0]]), lines)
            )
        return [*sentences, Numbers([m for m in self.measured(TOKENS.family.name) if catalog.read(m).record is TOKENS])]


def _caption(report: Report, label) -> str:
    """Return the class of a sentence, by its name if there is one."""
    classes = report.data.get("class_names") or []
    if not isinstance(label, int):
        return "A sentence"
    return f"Class: {classes[label] if 0 <= label < len(classes) else label}"
