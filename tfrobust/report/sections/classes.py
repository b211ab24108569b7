"""The sections on parts of the test set: accuracy by class and by group, clean and under the strongest attack."""

import functools

from tfrobust.report import attack_table, formats, parts
from tfrobust.report.blocks import Block, Grid
from tfrobust.report.parts import Part
from tfrobust.report.sections.base import Section
from tfrobust.structs import Measurement

# Maximum number of classes shown; of more classes, those with the lowest accuracy.
_SHOWN = 30


class Classes(Section):
    """The accuracies by class as bars and numbers, clean and under the strongest attack that has them, lowest first."""

    anchor = "classes"
    heading = "Accuracy by class"
    kind, noun, plural = parts.CLASSES, "class", "classes"

    @property
    def lead(self) -> str:
        """The order, the classes shown, and a caveat."""
        total = len(self._names)
        which = f" Shown are the {_SHOWN} of {total} {self.plural} with the lowest accuracy." if total > _SHOWN else ""
        return (
            f"A mean accuracy hides the weakest {self.noun}. The lowest comes first.{which} n is the number of test "
            f"{self.examples} of a {self.noun} that were measured. The lowest of many measured accuracies is biased "
            "downwards, since it was selected for being the lowest."
        )

    @property
    def sentence(self) -> str:
        """The class with the lowest accuracy, clean and attacked, with its number."""
        clauses = []
        for heading, column in self.columns.items():
            lowest = parts.worst(list(column.values()))
            when = "clean" if heading == "Clean" else f"under {heading}"
            clauses.append(f"{when}, {lowest.name} with {formats.number(lowest.accuracy)}")
        return f"Lowest accuracy: {'; '.join(clauses)}."

    def blocks(self) -> list[Block]:
        """Return the table of classes."""
        keys = list(self._names)[:_SHOWN]
        table: dict[str, list] = {self.noun.capitalize(): [self._names[key] for key in keys]}
        bars: list[tuple[int, str]] = []
        counts: list[int | None] | None = None
        for heading, column in self.columns.items():
            role = "clean" if heading == "Clean" else "attacked"
            accuracies = [column[key].accuracy if key in column else None for key in keys]
            last_counts, counts = counts, [accuracy.n if accuracy else None for accuracy in accuracies]
            if counts != last_counts:  # an attack may have taken fewer images
                table["n" if last_counts is None else f"n, {role}"] = counts
            bars.append((len(table), role))
            table[heading] = accuracies
        return (
            [Grid([*table], [list(row) for row in zip(*table.values(), strict=True)], bars=tuple(bars))] if keys else []
        )

    @functools.cached_property
    def columns(self) -> dict[str, dict[int | str, Part]]:
        """Heading -> label -> the class and its accuracy, of what was measured."""
        rows = attack_table.attack_rows(self.report.measurements)
        attack = attack_table.strongest([row for row in rows if self._of(row.accuracy)])
        clean = self._of(self.report.get("accuracy.clean") or Measurement("accuracy.clean", None))
        columns = {"Clean": clean} | ({attack.title: self._of(attack.accuracy)} if attack else {})
        return {heading: {part.key: part for part in column} for heading, column in columns.items() if column}

    def _of(self, accuracy: Measurement) -> list[Part]:
        return parts.of(self.report, accuracy.id, self.kind)

    @functools.cached_property
    def _names(self) -> dict[int | str, str]:
        """Label -> name, by accuracy under attack, or clean without one."""
        *_, weakest = self.columns.values() or [{}]
        names = {part.key: part.name for column in self.columns.values() for part in column.values()}

        def accuracy_of(key: int | str) -> float:
            return weakest[key].accuracy.value if key in weakest else 2.0

        return {key: names[key] for key in sorted(sorted(names), key=accuracy_of)}


class Groups(Classes):
    """The same by group: where the images were taken, of whom, or by which device."""

    anchor = "groups"
    heading = "Accuracy by group"
    kind, noun, plural = parts.GROUPS, "group", "groups"
