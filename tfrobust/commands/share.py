"""The command `tfrobust share`: upload an export with its report and a model card to the Hugging Face Hub.

    python -m tfrobust share exported/ascl_leaked --repo=my_name/ascl_leaked --license=apache-2.0
    python -m tfrobust share exported/ascl_leaked --repo=my_name/ascl_leaked --output=runs/card

The repository gets README.md, the card, and the newest version in a folder of its number, as TensorFlow Serving reads
it. With `--output`, the card is written there, the files are listed, and nothing is sent.
"""

import argparse
import pathlib
import sys

from tfrobust.commands import failures
from tfrobust.commands.flags import Parser
from tfrobust.commands.run import quiet_stderr
from tfrobust.common import files
from tfrobust.errors import InputError
from tfrobust.security import archives

CARD = "README.md"


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("share", "Upload an export, its report and a model card to the Hugging Face Hub.")
    help_text = "exported/NAME, of which the newest version is shared, or exported/NAME/VERSION"
    flags.add_argument("export", metavar="DIR", type=pathlib.Path, help=help_text)
    flags.add_argument("--repo", metavar="OWNER/NAME", required=True, help="the repository, created if it is missing")
    help_text = "license of the weights, by its identifier on the Hub, such as apache-2.0; default: unknown"
    flags.add_argument("--license", metavar="ID", default="unknown", help=help_text)
    flags.add_argument("--private", action="store_true", help="create a private repository; refuse a public one")
    help_text = "write the card into this folder and list the files, without network"
    flags.add_argument("--output", metavar="DIR", type=pathlib.Path, help=help_text)
    return flags


def run(flags: argparse.Namespace) -> None:
    """Check the export, write its card, and upload or list the files."""
    if flags.repo.count("/") != 1 or not all(flags.repo.split("/")):
        raise InputError(f"--repo={flags.repo[:100]} is not OWNER/NAME.")
    if flags.private and flags.output:
        raise InputError("--private is about the repository of an upload, and --output sends nothing: leave one out.")
    if not flags.export.is_dir():
        raise FileNotFoundError(f"There is no folder {flags.export}.")
    directory = files.saved_model_directory(flags.export).resolve()
    with quiet_stderr():  # TensorFlow writes to standard error during its import
        from tfrobust.report.comparison.reports import load_reports
        from tfrobust.report.renderers import card
        from tfrobust.serving import hub
        from tfrobust.serving.export import probe
    if not directory.name.isdecimal():
        raise InputError(f"{flags.export} is not a published version: give exported/NAME or exported/NAME/VERSION.")
    reports = load_reports([directory])
    if not reports:
        raise InputError(f"{directory} has no robustness report, which the card is made from.")
    problems = probe.check_sums(directory)
    if problems:
        raise InputError(f"{flags.export} is not what was published: {problems[0]}")
    try:
        golden = probe.read_golden(directory)
        shape = golden[probe.request_name(golden)].shape[1:]
    except (*archives.ARRAY_ERRORS, StopIteration) as error:
        raise InputError(f"{flags.export} has no {probe.GOLDEN_FILE} that can be read: export it again.") from error
    about = {"repo": flags.repo, "version": int(directory.name), "shape": shape, "license": flags.license}
    text = card.render(reports[0][1], **about)
    contents = {CARD: text.encode()}
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        contents[f"{directory.name}/{path.relative_to(directory).as_posix()}"] = path
    if flags.output is None:
        print(hub.upload(contents, flags.repo, private=flags.private))
        return
    flags.output.mkdir(parents=True, exist_ok=True)
    files.write_atomically(flags.output / CARD, text)
    for name, content in contents.items():
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        print(f"{size:>12,}  {name}")
    print(f"card  {flags.output / CARD}")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
