"""The sections on the scope of the results: the threat statement, and what was not measured."""

from tfrobust.report.blocks import Block, Listing, Paragraph
from tfrobust.report.sections.base import Section


class Threat(Section):
    """The threat statement."""

    anchor = "threat"
    heading = "Scope of the results"

    def blocks(self) -> list[Block]:
        """Return the statement."""
        return [Paragraph(self.report.threat)] if self.report.threat else []


class Missing(Section):
    """The list of what was not measured."""

    anchor = "missing"
    heading = "Not measured"
    lead = "Results that a reader might expect. No conclusion about them follows from this report."

    def blocks(self) -> list[Block]:
        """Return the list."""
        return [Listing(self.report.not_measured)] if self.report.not_measured else []
