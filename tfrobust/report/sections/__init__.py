"""The sections of a report. Each class in a module of this package is one; `ORDER` puts them in order.

    Report ──> Section ──> blocks ──> HTML, Markdown, console
               one per     Grid, Figure, Paragraph, ...:
               subject     no section knows a format, and no format knows a section

A section without blocks does not apply to the report. `Further` shows every measurement that no other section shows.
"""

import functools
import importlib
import inspect
import pkgutil

from tfrobust.report.schema import Report
from tfrobust.report.sections.base import Section

# Sections that are not listed come before the further measurements.
ORDER = (
    "attacks bracket smoothing curve epochs threat classes groups examples corruptions stability noise calibration"
    " prediction_sets ood divergence features sensitivity tokens further doctor missing protocol pairs history identity"
    " cost configuration"
).split()


def build(report: Report) -> list[Section]:
    """Return the sections that apply to a report, in order; their blocks are in `content`."""
    everything: list[Section] = []
    everything += [kind(report, everything) for kind in kinds()]
    return [section for section in everything if section.content]


@functools.cache
def kinds() -> list[type[Section]]:
    """Return the classes of all sections, in order."""
    classes = []
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        classes += [
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Section) and value.__module__ == module.__name__
        ]
    return sorted((kind for kind in classes if not inspect.isabstract(kind)), key=_sort_key)


def _sort_key(kind: type[Section]) -> float:
    return ORDER.index(kind.anchor) if kind.anchor in ORDER else ORDER.index("further") - 0.5
