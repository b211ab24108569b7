"""The robustness report: JSON is the source; HTML, Markdown and tables are rendered from it. Imports no TensorFlow."""

from tfrobust.report.missing import not_measured
from tfrobust.report.schema import JSON_SCHEMA, SCHEMA, SCHEMA_FILE, Report
from tfrobust.report.threat import threat_statement
from tfrobust.report.writer import write_report

__all__ = [
    "JSON_SCHEMA",
    "SCHEMA",
    "SCHEMA_FILE",
    "Report",
    "not_measured",
    "threat_statement",
    "write_report",
]
