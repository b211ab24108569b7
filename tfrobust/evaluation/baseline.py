"""Another model's report as the measure of one's own numbers."""

import json
import pathlib


def values_of(path: str) -> tuple[str, dict[str, float | None]]:
    """The model's name and the values by id of a report.

    Args:
        path: of a `robustness_report.json`.

    Raises:
        ValueError: it is none.
    """
    try:
        report = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        values = {one["id"]: one["value"] for one in report["measurements"]}
        return report["model"]["name"], values
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"The baseline {path} is neither 'alexnet' nor a robustness_report.json.") from error
