"""The command `python -m tfrobust.train`: train, evaluate the staged SavedModel, write the report, publish."""

import argparse
import sys

from tfrobust.commands import failures, seeds
from tfrobust.commands.flags import Parser, PrintEnvironment, budget, count, counts
from tfrobust.commands.run import call, differing_text, operative_text, outside_lines, prepare
from tfrobust.common.files import check_writable
from tfrobust.errors import InputError


def parser() -> Parser:
    """Return the command's flags."""
    flags = Parser("train", "Train a robust model, evaluate it, write its report and publish it as a SavedModel.")
    flags.add_gin_flags("gin/ascl_leaked.gin")
    help_text = (
        "checkpoints and report; default: runs/<NAME>, or runs/<NAME>-2, ... beside other training configurations"
    )
    flags.add_argument("--workdir", metavar="DIR", help=help_text)
    flags.add_argument("--export_dir", metavar="DIR", default="exported", help="default: exported")
    help_text = "version to publish, the next one by default; without N: print versions and devices, for a bug report"
    flags.add_argument("--version", metavar="N", type=count, nargs="?", action=PrintEnvironment, help=help_text)
    help_text = "publish also a model that differs from the newest version in its training, or is worse; see `publish`"
    flags.add_argument("--publish", action="store_true", help=help_text)
    flags.add_argument("--profile", metavar="N", type=count, default=0, help="profile N steps for TensorBoard")
    help_text = "print what differs from the defaults (all settings with --verbose) and the cost, and stop"
    flags.add_argument("--dry_run", action="store_true", help=help_text)
    flags.add_budget()
    help_text = "with --dry_run: plan the training on so many accelerators, under assumptions that Plan sets in gin"
    flags.add_argument("--replicas", metavar="N,N,...", type=counts, help=help_text)
    seeds.add_flags(flags)
    flags.add_verbosity()
    return flags


def run(flags: argparse.Namespace) -> None:
    """Configure and start the experiment, or one per seed."""
    if flags.replicas and (flags.seeds or not flags.dry_run):
        raise InputError("--replicas needs --dry_run and no --seeds: it forecasts one run and starts none.")
    for flag in ("workdir", "export_dir"):
        if getattr(flags, flag):  # also for a dry run: the run would refuse it, too
            check_writable(getattr(flags, flag), f"--{flag}")
    if flags.seeds:
        return seeds.run(flags, parser())
    if flags.parallel:
        raise InputError("--parallel needs --seeds, such as --seeds=0,1,2.")
    if flags.replicas:
        flags.gin_param = ["train.plan=@Plan()", *flags.gin_param, f"Plan.replicas={flags.replicas}"]
    prepare(flags, "train")
    if flags.dry_run:
        print("".join(f"outside     {line}\n" for line in outside_lines()), end="", flush=True)
    call(
        "train",
        allow_downloads=flags.allow_downloads,
        workdir=flags.workdir,
        export_dir=flags.export_dir,
        version=flags.version,
        publish_anyway=flags.publish,
        profile=flags.profile,
        dry_run=flags.dry_run,
        budget=budget(parser(), flags, "train"),
        training_must_be_done=False,
        verbose=flags.verbose,
        configuration=differing_text if flags.dry_run and flags.verbose < 2 else operative_text,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit code."""
    return failures.main(parser(), run, arguments)


if __name__ == "__main__":
    sys.exit(main())
