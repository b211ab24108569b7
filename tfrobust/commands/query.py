"""The command `python -m tfrobust.query`: request predictions, metadata or the report from a TensorFlow Serving."""

import argparse
import json
import sys

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser, PrintEnvironment, count
from tfrobust.commands.run import quiet_stderr
from tfrobust.errors import InputError


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("query", "Query a model that TensorFlow Serving serves, over REST or gRPC.")
    flags.add_argument(
        "--url", required=True, help="http(s)://host:8501 for REST, grpc(s)://host:8500 for gRPC; REST is the default"
    )
    flags.add_argument("--model", required=True, metavar="NAME", help="the name it is served under")
    which = flags.add_mutually_exclusive_group()
    help_text = "default: the newest; without N: print versions and devices, for a bug report"
    which.add_argument("--version", metavar="N", type=count, nargs="?", action=PrintEnvironment, help=help_text)
    which.add_argument("--label", metavar="NAME", help="a version by its label, such as stable")
    request = flags.add_mutually_exclusive_group()
    request.add_argument(
        "--image",
        metavar="FILE",
        action="append",
        help="predict: a PNG or JPEG, or .npy or .npz arrays: images or clips in [0, 1], or tokens; may be repeated",
    )
    request.add_argument("--metadata", action="store_true", help="show the served versions and endpoints")
    request.add_argument("--report", action="store_true", help="show the served model's own robustness report")
    flags.add_argument(
        "--smoothed", action="store_true", help="with --image: class and certified radius of the smoothed classifier"
    )
    flags.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
    flags.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=60.0, help="for one whole response; default: 60"
    )
    flags.add_argument("--ca", metavar="FILE", help="certificates that an https or grpcs server must be signed by")
    return flags


def run(flags: argparse.Namespace) -> None:
    """Send the request, and print the response."""
    from tfrobust.report.renderers import console as render
    from tfrobust.serving import client
    from tfrobust.serving.client import inputs
    from tfrobust.serving.client import query as answers

    if not (flags.image or flags.metadata or flags.report):
        raise InputError("nothing to request: set --image=FILE, --metadata or --report.")
    if flags.smoothed and not flags.image:
        raise InputError("--smoothed needs --image=FILE.")
    names, images = inputs.read(flags.image) if flags.image else ([], None)
    where = dict(version=flags.version, label=flags.label, timeout=flags.timeout, authority=flags.ca)
    with quiet_stderr():
        asked = client.Client(flags.url, flags.model, **where)
    with asked:
        if flags.report:
            print(asked.report_text().rstrip("\n") if flags.format == "json" else _report_table(asked))
            return
        ask = answers.smoothed if flags.smoothed else answers.predict
        answer = answers.describe(asked) if flags.metadata else ask(asked, names, images)
    if flags.format == "json":
        print(json.dumps(answer, indent=1, ensure_ascii=False, allow_nan=False))
    elif flags.metadata:
        print(answers.metadata_heading(answer), *render.align(answers.metadata_rows(answer)), sep="\n")
    elif flags.smoothed:
        print(*render.align(answers.smoothed_rows(answer), (2,)), sep="\n")
    else:
        rows = answers.prediction_rows(answer)
        print(*render.align(rows, tuple(range(2, len(rows[0]), 2))), sep="\n")


def _report_table(asked) -> str:
    from tfrobust.report.renderers import console as render
    from tfrobust.report.schema import Report

    text = asked.report_text()
    try:
        report = Report.from_json(text)
    except InputError as error:
        raise InputError(f"the server's report cannot be read (--format=json prints it): {error}") from None
    return f"{render.console_table(report, short=True)}\n\n{render.terminal(report.threat)}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
