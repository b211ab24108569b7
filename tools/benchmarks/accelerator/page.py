#!/usr/bin/env python3
"""Write the stored results of run.py and torch_step.py as a table into tfrobust/guides/speed.md.

python tools/benchmarks/accelerator/page.py            # print the table
python tools/benchmarks/accelerator/page.py --write    # between the two marks of the page
"""

import argparse
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[3]
RESULTS = ROOT / "tools/benchmarks/results/accelerator"
PAGE = ROOT / "tfrobust/guides/speed.md"
BEGIN, END = "<!-- accelerator: begin -->", "<!-- accelerator: end -->"
ATTACK_STEPS = 10
NAMES = {"adversarial_training": "ADV", "trades": "TRADES"}
NETWORKS = {"resnet18": "ResNet-18", "wide_resnet28x10": "WRN-28-10"}
PRECISIONS = {"float32": "float32", "tf32": "TF32", "mixed_bfloat16": "bfloat16"}
HEADINGS = (
    "step",
    "tfrobust (middle half)",
    "bound",
    "step / bound",
    "`torch.compile`",
    "PyTorch, eager",
    "kernels alone: tfrobust, `torch.compile`",
    "memory: XLA's plan, `torch.compile`'s process",
)


def load(name: str, folder: pathlib.Path = RESULTS) -> dict | None:
    """Return the stored results of a program, None if it was not run."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def bound(method: str, rest: str, folder: pathlib.Path = RESULTS) -> float | None:
    """Return the seconds of the bare passes that a step needs, None if they were not measured.

    PGD takes a forward pass and a backward pass to the images in each step. ADV adds a forward pass of the clean images
    and a training pass; TRADES the clean prediction and two training passes, of clean and of adversarial images. A
    forward pass alone counts as half a gradient of the images.

    Args:
        method: adversarial_training or trades.
        rest: network-batch-precision.
        folder: of the results.
    """
    gradient, training = (load(f"bare_{kind}-{rest}", folder) for kind in ("gradient", "training"))
    if gradient is None or training is None:
        return None
    passes = ATTACK_STEPS + 0.5
    trained = {"adversarial_training": 1, "trades": 2}[method]
    return passes * gradient["step_seconds"]["median"] + trained * training["step_seconds"]["median"]


def row(name: str, folder: pathlib.Path = RESULTS) -> list[str]:
    """Return the cells of a program."""
    method, rest = name.split("-", 1)
    network, batch, precision = rest.split("-")
    ours, compiled, eager = (load(prefix + name, folder) for prefix in ("", "torch-compiled-", "torch-eager-"))
    median, least = ours["step_seconds"]["median"], bound(method, rest, folder)
    return [
        f"{NAMES[method]}, {NETWORKS[network]}, {batch}, {PRECISIONS[precision]}",
        f"{_milliseconds(median)} ({' to '.join(_milliseconds(value) for value in ours['step_seconds']['quartiles'])})",
        _milliseconds(least),
        "-" if least is None else f"{median / least:.2f}",
        _milliseconds(compiled and compiled["step_seconds"]["median"]),
        _milliseconds(eager and eager["step_seconds"]["median"]),
        ", ".join(_milliseconds(result and result["profile"]["busy_seconds"]) for result in (ours, compiled)),
        ", ".join("-" if result is None else f"{result['bytes'] / 1e6:.0f}" for result in (ours, compiled)),
    ]


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.1f}"


def table(folder: pathlib.Path = RESULTS) -> str:
    """Return the table of all stored steps of ADV and TRADES; milliseconds and megabytes."""
    names = [
        f"{method}-{network}-128-{precision}"
        for network in NETWORKS
        for method in NAMES
        for precision in PRECISIONS
        if (folder / f"{method}-{network}-128-{precision}.json").exists()
    ]
    lines = [HEADINGS, ["---", *["---:"] * (len(HEADINGS) - 1)], *(row(name, folder) for name in names)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def written(page: str) -> str:
    """Return the text of the page with the table between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Print or write the table."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--write", action="store_true", help="write it into the page")
    if flags.parse_args().write:
        PAGE.write_text(written(PAGE.read_text()))
    else:
        print(table())


if __name__ == "__main__":
    main()
