"""Record the outputs of the official AutoAttack, as an oracle for tests/attacks.

    python3 -m venv torch-env && torch-env/bin/pip install torch==2.13.0 numpy
    torch-env/bin/python tools/golden/record_autoattack.py components --repository=DIR
    torch-env/bin/python tools/golden/record_autoattack.py verdicts --repository=DIR --cases=CASES [--seconds=500]

DIR is your checkout of https://github.com/fra31/auto-attack. Nothing of it is copied: its modules are imported and run,
and inputs and outputs are written. Needs neither tfrobust nor TensorFlow. `verdicts` attacks the models of
tests/golden/autoattack_models.npz (made by tools/golden/autoattack_equality.py), writes one file per case into CASES,
resumes if it was stopped, and collects the finished cases in one golden file.
"""

import argparse
import contextlib
import io
import json
import pathlib
import time
from unittest import mock

import numpy as np
import torch
from _autoattack_components import RECORDERS
from _autoattack_torch import DigitsCNN, first, official

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
# Radii at which 30 to 60 % robust accuracy remain under the official ensemble, chosen from the distances that a short
# FAB finds (`epsilons`).
EPSILONS = {
    ("supervised", "Linf"): 0.1,
    ("supervised", "L2"): 0.5,
    ("supervised", "L1"): 1.2,
    ("adversarial_training", "Linf"): 0.2,
    ("adversarial_training", "L2"): 0.7,
    ("adversarial_training", "L1"): 1.1,
    ("ascl_leaked", "Linf"): 0.21,
    ("ascl_leaked", "L2"): 0.7,
    ("ascl_leaked", "L1"): 1.1,
}


def record_components(arguments):
    """Record the parts on small inputs in one file."""
    record = {}
    for recorder in RECORDERS:
        record = recorder(arguments.repository, record)
    np.savez_compressed(arguments.output, **record)
    size = pathlib.Path(arguments.output).stat().st_size
    print(f"{arguments.output}: {len(record)} arrays, {size / 1000:.0f} kB")


def load_models() -> tuple[dict[str, DigitsCNN], torch.Tensor, torch.Tensor]:
    """Load the digits models by name, the images and the labels."""
    with np.load(GOLDEN / "autoattack_models.npz") as archive:
        arrays = dict(archive)
    weights = {}
    for key, value in arrays.items():
        model, _, name = key.partition("/")
        if name:
            weights.setdefault(model, {})[name] = value
    images = first(arrays["images"].astype(np.float32) / 16)
    return (
        {model: DigitsCNN(arrays_of_model) for model, arrays_of_model in weights.items()},
        images,
        torch.tensor(arrays["labels"]).long(),
    )


def show_epsilons(arguments):
    """Print quantiles of the distances from each image to its nearest decision boundary, as found by a short FAB."""
    module, (models, images, labels) = official(arguments.repository, "fab_pt"), load_models()
    orders = {"Linf": np.inf, "L2": 2, "L1": 1}
    for name, model in models.items():
        for norm, order in orders.items():
            attack, nearest = module.FABAttack_PT(model, norm=norm, n_iter=30, eps=1.0), np.inf
            for attack.target_class in (2, 3, 4):
                change = (attack.attack_single_run(images, labels, is_targeted=True) - images).flatten(1).numpy()
                distance = np.linalg.norm(change, order, axis=1)
                nearest = np.minimum(nearest, np.where(distance > 0, distance, np.inf))
            quantiles = {share: float(np.quantile(nearest, 1 - share / 100)) for share in (60, 55, 50, 45, 40)}
            print(name, norm, json.dumps({share: round(value, 4) for share, value in quantiles.items()}), flush=True)


def cases():
    """Yield (model, norm, what, seed), the most important cases first.

    The targeted FAB makes no random draws in its only start, so a second seed is not informative. The quick member with
    noisy results gets four seeds, so that its spread is known.
    """
    firsts = [("ensemble", 0), ("apgd-ce", 0), ("apgd-t", 0), ("fab-t", 0), ("apgd-ce", 1), ("apgd-ce", 2)]
    later = [("apgd-t", 1), ("square", 0), ("square", 1), ("square", 2), ("ensemble", 1), ("apgd-ce", 3)]
    for attack, seed in [*firsts, *later]:
        for model, norm in EPSILONS:
            yield model, norm, attack, seed


def attack_case(repository, model, images, labels, case) -> dict:
    """Run the official package once: the members' verdicts in order, each on the examples that remain.

    Returns:
        `robust` [members, n]: still classified correctly after that member; `seconds` of the run; `distance` [n] of the
        adversarial images.
    """
    name, norm, attack_name, seed = case
    package, state = official(repository, "autoattack"), official(repository, "state")
    attack = package.AutoAttack(model, norm=norm, eps=EPSILONS[name, norm], seed=seed, verbose=False, device="cpu")
    if attack_name != "ensemble":
        attack.attacks_to_run = [attack_name]
    flags, real = [], state.EvaluationState.add_run_attack

    def watch(self, attack):
        flags.append(self.robust_flags.numpy().copy())
        real(self, attack)

    started = time.perf_counter()
    with mock.patch.object(state.EvaluationState, "add_run_attack", watch), contextlib.redirect_stdout(io.StringIO()):
        adversarial = attack.run_standard_evaluation(images, labels, bs=len(images))
    seconds = time.perf_counter() - started
    order = {"Linf": np.inf, "L2": 2, "L1": 1}[norm]
    distance = np.linalg.norm((adversarial - images).flatten(1).numpy(), order, axis=1)
    return {"robust": np.stack(flags), "seconds": np.float32(seconds), "distance": distance.astype(np.float32)}


def record_verdicts(arguments):
    """Record the verdicts of each attack: one file per case, then all finished ones in one file."""
    models, images, labels = load_models()
    arguments.cases.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    paths = {case: arguments.cases / ("_".join(map(str, case)) + ".npz") for case in cases()}
    for case, path in paths.items():
        if path.is_file() or time.perf_counter() - started > arguments.seconds:
            continue
        result = attack_case(arguments.repository, models[case[0]], images, labels, case)
        partial = path.with_suffix(".part.npz")
        np.savez_compressed(partial, **result)
        partial.rename(path)
        shares = " ".join(f"{share:.3f}" for share in result["robust"].mean(1))
        print(*case, f"robust {shares}, {result['seconds']:.1f} s, at most {result['distance'].max():.4f}", flush=True)
    collect(arguments.output, models, images, paths)


def collect(output, models, images, paths):
    """Write the finished cases to one file, with the models' logits on the clean images."""
    record = {f"{model}/{norm}/epsilon": np.float64(epsilon) for (model, norm), epsilon in EPSILONS.items()}
    finished = {case: path for case, path in paths.items() if path.is_file()}
    for case, path in finished.items():
        name = "/".join(map(str, case))
        with np.load(path) as archive:
            record[f"{name}/robust"] = np.packbits(archive["robust"], axis=-1)
            record[f"{name}/seconds"] = archive["seconds"]
    with torch.no_grad():
        record |= {f"{name}/logits": model(images).numpy() for name, model in models.items()}
    partial = pathlib.Path(output).with_suffix(".part.npz")
    np.savez_compressed(partial, **record)
    partial.rename(output)
    print(f"{output}: {len(finished)} of {len(paths)} cases, {pathlib.Path(output).stat().st_size / 1000:.0f} kB")


def main():
    """Run the chosen command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    components = commands.add_parser("components", help="the parts on small inputs")
    components.add_argument("--output", default=str(GOLDEN / "autoattack_components.npz"))
    components.set_defaults(run=record_components)
    epsilons = commands.add_parser("epsilons", help="print where to put the radii")
    epsilons.set_defaults(run=show_epsilons)
    verdicts = commands.add_parser("verdicts", help="the ensembles and their members on the digits models")
    verdicts.add_argument("--output", default=str(GOLDEN / "autoattack_verdicts.npz"))
    verdicts.add_argument("--cases", type=pathlib.Path, required=True, help="folder of the finished cases")
    verdicts.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after that")
    verdicts.set_defaults(run=record_verdicts)
    for command in (components, epsilons, verdicts):
        command.add_argument("--repository", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.run(arguments)


if __name__ == "__main__":
    main()
