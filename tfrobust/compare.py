"""python -m tfrobust.compare: one table and one HTML page over many reports."""

import argparse
import pathlib
import sys

from tfrobust import cli
from tfrobust.errors import InputError


def parser() -> cli.Parser:
    """The command's flags."""
    flags = cli.Parser("compare", "Compare reports: the newest version of each exported model, or report files.")
    flags.add_argument("paths", metavar="PATH", nargs="+", help="exported/*, workdirs, or report files")
    flags.add_argument(
        "--output",
        metavar="FILE.html",
        default="runs/comparison.html",
        help="where the page goes; default: runs/comparison.html",
    )
    flags.add_argument(
        "--gap_from", metavar="NAME", help="show what share of the gap between this model's relative drops"
    )
    flags.add_argument("--gap_to", metavar="NAME", help="and this one's the others close, attack by attack")
    return flags


def run(flags: argparse.Namespace) -> None:
    """Reads the reports, prints the table, writes the page."""
    from tfrobust.ops.files import write_atomically
    from tfrobust.report import compare

    reports = compare.load_reports(flags.paths)
    if not reports:
        raise InputError(
            f"no robustness report below {', '.join(flags.paths)[:120]}; name exported models or workdirs."
        )
    if bool(flags.gap_from) != bool(flags.gap_to):
        raise InputError("a gap has two ends: give both --gap_from and --gap_to.")
    ends = (flags.gap_from, flags.gap_to) if flags.gap_from else None
    page = compare.compare_html(reports, ends)
    output = pathlib.Path(flags.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, page)
    print(compare.table(reports))
    if ends:
        print(f"\n{compare.gap(reports, ends)}")
    print(output)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return cli.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
