"""The report's writer: JSON, HTML and Markdown, each file written completely or not at all."""

import hashlib
import os
import pathlib

from tfrobust.common.files import write_atomically
from tfrobust.report.renderers import html, markdown
from tfrobust.report.schema import Report


def write_report(report: Report, directory: str | os.PathLike) -> list[pathlib.Path]:
    """Validate and render a report, then write `robustness_report.json`, `.html`, `.md` and `SHA256SUMS`.

    To check them: `cd <directory> && sha256sum -c SHA256SUMS`.

    Args:
        report: the report.
        directory: created if missing; files of the same name are replaced.

    Returns:
        The paths of the JSON, HTML and Markdown files, and of SHA256SUMS.

    Raises:
        ValueError: the report is not valid; nothing has been written.
    """
    report.validate()
    contents = {"html": html.render(report), "md": markdown.render(report), "json": report.to_json()}
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = {ending: directory / f"robustness_report.{ending}" for ending in ("json", "html", "md")}
    sums = [f"{hashlib.sha256(contents[ending].encode()).hexdigest()}  {path.name}\n" for ending, path in paths.items()]
    for ending in ("html", "md"):
        write_atomically(paths[ending], contents[ending])
    write_atomically(directory / "SHA256SUMS", "".join(sums))
    write_atomically(paths["json"], contents["json"])  # last, so that its existence implies the other files
    return [*paths.values(), directory / "SHA256SUMS"]
