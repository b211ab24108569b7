"""The command `python -m tfrobust.compare`: one table and one HTML page over many reports."""

import argparse
import dataclasses
import json
import pathlib
import shutil
import sys

from tfrobust.commands import failures, published
from tfrobust.commands.flags import Parser
from tfrobust.errors import InputError


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("compare", "Compare reports: the newest version of each exported model, or report files.")
    flags.add_argument("paths", metavar="PATH", nargs="+", help="exported/*, workdirs, or report files")
    flags.add_argument(
        "--output",
        metavar="FILE.html",
        default="runs/comparison.html",
        help="where the page goes; default: runs/comparison.html",
    )
    help_text = "one row for all exports NAME-seed0, NAME-seed1, ...: mean, spread, and differences paired over seeds"
    flags.add_argument("--group", action="store_true", help=help_text)
    flags.add_argument("--sort", metavar="ID", help="order by this measurement, such as accuracy.clean, largest first")
    flags.add_argument("--ascending", action="store_true", help="with --sort: smallest first")
    flags.add_argument(
        "--reference", metavar="NAME", help="show the differences from this model or group, with intervals"
    )
    flags.add_argument("--strict", action="store_true", help="refuse reports whose numbers may not be compared")
    flags.add_argument("--format", choices=("table", "markdown", "json"), default="table", help="default: table")
    help_text = (
        "also print the published rows of a base of gin/papers, such as cifar10_resnet20; default: of the same data"
    )
    flags.add_argument("--published", metavar="BASE", nargs="?", const="", help=help_text)
    flags.add_argument(
        "--gap_from", metavar="NAME", help="show the share of the gap between this model's relative drops"
    )
    flags.add_argument("--gap_to", metavar="NAME", help="and this model's that the others close, attack by attack")
    return flags


def run(flags: argparse.Namespace) -> None:
    """Read the reports, print the table and write the page."""
    from tfrobust.common.files import write_atomically
    from tfrobust.report.comparison import reports as compare
    from tfrobust.report.comparison import views as compare_views

    if bool(flags.gap_from) != bool(flags.gap_to):
        raise InputError("a gap has two ends: set both --gap_from and --gap_to.")
    if flags.ascending and not flags.sort:
        raise InputError("--ascending needs --sort=ID, the measurement to sort by.")
    if flags.group and flags.gap_from:
        raise InputError("--gap_from compares single reports; leave out --group.")
    output = pathlib.Path(flags.output)
    if output.suffix.lower() not in (".html", ".htm"):  # a report or a model of that name would be lost
        raise InputError(f"--output={flags.output[:100]} is no name of a page; give FILE.html.")
    if output.stem == pathlib.Path(compare.REPORT_FILE).stem and (output.parent / compare.REPORT_FILE).exists():
        raise InputError(f"--output={flags.output[:100]} is the page of the report beside it; give another name.")
    if flags.published and pathlib.Path(flags.published).exists():
        raise InputError(
            f"--published takes the word behind it as a base, here {flags.published[:100]}: write --published=BASE, or "
            "put --published after the paths."
        )
    ends = (flags.gap_from, flags.gap_to) if flags.gap_from else None
    reports = compare.load_reports(flags.paths)
    if not reports:
        raise InputError(
            f"no robustness report below {', '.join(flags.paths)[:120]}; name exported models or workdirs."
        )
    comparison = compare.arrange(reports, flags.sort, flags.ascending, flags.reference, flags.group)
    if flags.strict and comparison.notes:
        first, *further_notes = comparison.notes
        more = f" (and {len(further_notes)} more)" if further_notes else ""
        raise InputError(f"these reports are not comparable: {first[:200]}{more} Without --strict they are marked.")
    papers = []
    if flags.published is not None:
        papers = published.tables(flags.published, sorted({report.data["name"] for _, report in reports}))
    if flags.format == "json":
        text = compare_views.as_json(comparison)
        if papers:
            text = json.dumps(json.loads(text) | {"published": list(map(dataclasses.asdict, papers))}, indent=1)
    elif flags.format == "markdown":
        text = compare_views.markdown(comparison, ends)
        text += f"\n\n{published.markdown(papers)}" if papers else ""
    else:
        width = shutil.get_terminal_size((100, 0)).columns  # 100 if it is not a terminal
        text = compare_views.table(comparison, ends, width)
        text += f"\n\n{published.text(papers)}" if papers else ""
    page = compare_views.html(comparison, ends)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, page)
    print(text)
    if flags.format == "table":
        print(output)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
