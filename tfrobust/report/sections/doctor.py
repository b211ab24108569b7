"""The section on the doctor: checks of the evaluation itself."""

from tfrobust.report import reading
from tfrobust.report.blocks import Badge, Block, Noted, Table
from tfrobust.report.sections.base import Section


class Doctor(Section):
    """The doctor's findings: failures, then warnings, then passed checks."""

    anchor = "doctor"
    heading = "Doctor"

    @property
    def lead(self) -> str:
        """The doctor's purpose and the number of checks by verdict."""
        counts = reading.doctor_counts(self.report)
        return (
            "Checks of the evaluation itself, for mistakes that make a model look more robust than it is:"
            f" {counts['pass']} passed, {counts['warn']} warned, {counts['fail']} failed."
        )

    @property
    def sentence(self) -> str:
        """The number of passed checks and the names of the others."""
        said = f"{reading.doctor_counts(self.report)['pass']} of {len(self.report.doctor)} evaluation checks passed"
        for verdict in ("fail", "warn"):
            names = [reading.nice(finding.check) for finding in self.report.doctor if finding.verdict == verdict]
            said += f"; {verdict}: {', '.join(names[:4])}" + (", ..." if len(names) > 4 else "") if names else ""
        return f"{said}."

    def blocks(self) -> list[Block]:
        """Return the table of findings."""
        rows = []
        for one in sorted(self.report.doctor, key=lambda finding: ("fail", "warn", "pass").index(finding.verdict)):
            evidence = Noted(one.evidence, f"Remedy: {one.remedy}" if one.remedy else "")
            rows.append([reading.nice(one.check), Badge(one.verdict), evidence])
        return [Table(["Check", "Verdict", "Evidence"], rows, texts=3)] if rows else []
