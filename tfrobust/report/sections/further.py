"""The section on further measurements: those that no other section shows."""

from tfrobust.report import reading
from tfrobust.report.blocks import Block, Numbers, shown
from tfrobust.report.sections.base import Section


class Further(Section):
    """Every measurement, except costs, that no other section shows."""

    anchor = "further"
    heading = "Further measurements"

    @property
    def lead(self) -> str:
        """The origin of the images."""
        (numbers,) = self.content
        return f"All remaining measurements. {reading.origin(numbers.measurements)}".strip()

    def blocks(self) -> list[Block]:
        """Return the measurements that are left."""
        shown_elsewhere = shown(
            block for section in self.everything if section is not self for block in section.content
        )
        return [Numbers([m for m in reading.in_order(self.report) if m.id not in shown_elsewhere])]
