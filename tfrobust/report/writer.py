"""Writes a report as JSON, HTML and Markdown, each file whole or not at all."""

import hashlib
import os
import pathlib

from tfrobust.ops.files import write_atomically
from tfrobust.report.render import html, markdown
from tfrobust.report.schema import Report


def write_report(report: Report, directory: str | os.PathLike) -> list[pathlib.Path]:
    """Validates and renders a report, then writes `robustness_report.json`, `.html`, `.md` and `SHA256SUMS`.

    To check them: `cd <directory> && sha256sum -c SHA256SUMS`.

    Args:
        report: the report.
        directory: made if missing; files of the same name are replaced.

    Returns:
        The paths of the JSON, HTML and Markdown files, and of their sums.

    Raises:
        ValueError: the report is not valid; nothing has been written.
    """
    report.validate()
    contents = {"html": html(report), "md": markdown(report), "json": report.to_json()}
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = {ending: directory / f"robustness_report.{ending}" for ending in ("json", "html", "md")}
    sums = [f"{hashlib.sha256(contents[ending].encode()).hexdigest()}  {path.name}\n" for ending, path in paths.items()]
    for ending in ("html", "md"):
        write_atomically(paths[ending], contents[ending])
    write_atomically(directory / "SHA256SUMS", "".join(sums))
    write_atomically(paths["json"], contents["json"])  # last: where it stands, the others stand too
    return [*paths.values(), directory / "SHA256SUMS"]
