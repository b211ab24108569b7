"""The section on the doctor: checks of the evaluation itself."""

import re

from tfrobust.report import formats, reading
from tfrobust.report.blocks import Badge, Block, Noted, Table
from tfrobust.report.sections.base import Section


class Doctor(Section):
    """The doctor's findings: failures and warnings, then passed checks."""

    anchor = "doctor"
    heading = "Evaluation checks"

    @property
    def lead(self) -> str:
        """The doctor's purpose and the number of checks by verdict."""
        counts = reading.doctor_counts(self.report)
        return (
            "The doctor checks the evaluation itself for mistakes that make a model look more robust than it is:"
            f" {counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed."
        )

    def blocks(self) -> list[Block]:
        """Return the table of failures and warnings, and a collapsed one of the passed checks."""
        rows: dict[str, list] = {"fail": [], "warn": [], "pass": []}
        for finding in self.report.doctor:
            evidence = Noted(_spaced(finding.evidence), f"Remedy: {_spaced(finding.remedy)}" if finding.remedy else "")
            rows[finding.verdict].append([formats.nice(finding.check), Badge(finding.verdict), evidence])
        header, worse = ["Check", "Verdict", "Evidence"], rows["fail"] + rows["warn"]
        tables = [Table(header, worse, texts=3)] if worse else []
        passed = Table(header, rows["pass"], texts=3, title=f"{len(rows['pass'])} passed checks", collapsed=True)
        return [*tables, *([passed] if rows["pass"] else [])]


def _spaced(text: str) -> str:
    """Write per cents as the rest of the page does: "98.9%" becomes "98.9 %"."""
    return re.sub(r"(?<=\d)%", " %", text)
