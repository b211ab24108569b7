"""Compare tfrobust's AutoAttack with the official one on the same weights and images: the equality table.

    python tools/golden/autoattack_equality.py models NAME/VERSION ...    # exports of the digits runs
    python tools/golden/record_autoattack.py verdicts --repository=DIR --cases=CASES      # in an environment with torch
    python tools/golden/autoattack_equality.py run --cases=OURS [--what=ensemble] [--seconds=500]
    python tools/golden/autoattack_equality.py table --cases=OURS

`models` takes the weights out of exports. `run` attacks every recorded case with tfrobust, writes one file per case
into OURS, and resumes if it was stopped. `table` prints both results; it exits with 1 if they differ too much.
"""

import argparse
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(ROOT / "tests"))
from oracles import official_autoattack  # noqa: E402


def take_models(arguments):
    """Write weights (kernels rounded to half precision), test images (exactly, in sixteenths) and labels."""
    import tensorflow as tf

    from tfrobust.data.sources.digits import Digits

    images, labels = Digits(validation_size=100).load().test.arrays()
    record = {"images": np.round(images * 16).astype(np.uint8), "labels": labels.astype(np.uint8)}
    for path in arguments.exports:
        reader = tf.train.load_checkpoint(str(path / "variables" / "variables"))
        for number, name in enumerate(official_autoattack.VARIABLES):
            value = reader.get_tensor(f"variables/{number}/.ATTRIBUTES/VARIABLE_VALUE")
            record[f"{path.parent.name}/{name}"] = value.astype(np.float16) if name.endswith("kernel") else value
    np.savez_compressed(arguments.output, **record)
    print(f"{arguments.output}: {len(record)} arrays, {pathlib.Path(arguments.output).stat().st_size / 1000:.0f} kB")


def run(arguments):
    """Attack every recorded case whose file is missing with tfrobust."""
    started = time.perf_counter()
    arguments.cases.mkdir(parents=True, exist_ok=True)
    for case in official_autoattack.cases():
        path = arguments.cases / f"{case.model}_{case.norm}_{case.attack}_{arguments.seed}.json"
        if path.is_file() or (arguments.what and case.attack not in arguments.what.split(",")):
            continue
        if time.perf_counter() - started > arguments.seconds:
            print("time is up; the same command goes on")
            return
        begun = time.perf_counter()
        robust = official_autoattack.attack_with_ours(case, seed=arguments.seed)
        result = {"robust": robust.astype(int).tolist(), "seconds": time.perf_counter() - begun}
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(result))
        partial.rename(path)
        shares = " ".join(f"{share:.3f}" for share in robust.mean(1))
        print(case.model, case.norm, case.attack, f"robust {shares}, {result['seconds']:.1f} s", flush=True)


def print_table(arguments):
    """Print tfrobust's results next to both recorded seeds.

    Values in per cent are robust accuracies, the others count verdicts.
    """
    print("| model | norm | epsilon | attack | n | official, % | ours, % | differ | spread | allowed | seconds |")
    print("| --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    faults = undecided = missing = 0
    for case in official_autoattack.cases():
        path = arguments.cases / f"{case.model}_{case.norm}_{case.attack}_{arguments.seed}.json"
        if not path.is_file():
            missing += 1
            continue
        ours = json.loads(path.read_text())
        robust = np.array(ours["robust"], bool)[-1]
        verdict = official_autoattack.compare(case, robust)
        # One seed shows no spread, unless the attack is deterministic.
        alone = len(case.robust) == 1 and case.attack != "fab-t"
        faults += not verdict.equal and not alone
        undecided += not verdict.equal and alone
        official = " / ".join(f"{100 * flags.mean():.1f}" for flags in case.robust)
        seconds, spread = f"{case.seconds:.0f} / {ours['seconds']:.0f}", "?" if alone else verdict.spread
        print(
            f"| {case.model} | {case.norm} | {case.epsilon:g} | {case.attack} | {len(robust)} | {official} "
            f"| {100 * robust.mean():.1f} | {verdict.differing} | {spread} | {verdict.allowed} | {seconds} |"
        )
    print(f"\n{faults} cases differ too much, {undecided} wait for a second official seed, {missing} for ours.")
    return 1 if faults else 0


def main():
    """Run the chosen command; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    models = commands.add_parser("models", help="take the weights out of exports")
    models.add_argument("exports", nargs="+", type=pathlib.Path, help="folders NAME/VERSION")
    models.add_argument("--output", default=str(GOLDEN / "autoattack_models.npz"))
    models.set_defaults(run=take_models)
    attack = commands.add_parser("run", help="ours on the recorded cases")
    attack.add_argument("--what", default="", help="ensemble or members, by comma; default all")
    attack.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after that")
    attack.set_defaults(run=run)
    table = commands.add_parser("table", help="both side by side")
    table.set_defaults(run=print_table)
    for command in (attack, table):
        command.add_argument("--cases", type=pathlib.Path, required=True, help="folder of our finished cases")
        command.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
