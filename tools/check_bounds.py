"""Draw small networks, and search their balls for wrong certificates.

    python tools/check_bounds.py                              # 10,000 and 300 networks, about 40 minutes
    python tools/check_bounds.py --networks=500 --decided=50 --seed=3

The first have casts, policies, and huge and tiny weights. Each is bounded by `certification.certified_margins`, and its
model is run on some 200 images inside the ball. The outcomes: "no model" (it fails itself), "refused" (by name), "none"
(no finite bound), "bounded", "certified". An image with a smaller margin than the bound, or a misclassified one inside
a certified ball, is a contradiction; the tool prints it and returns 1.

The others compute in float32 and have weights of usual sizes. Every method bounds them, in L∞, L2 or L1; branch and
bound certifies or breaks their images. Corners, random points and gradient steps search each ball, and in L∞ a
mixed-integer program finds the smallest margin, of most. Contradictions are also: a tighter method with a smaller
margin, a counterexample outside its ball, and a verdict that the smallest margin does not bear out.
"""

import argparse
import pathlib
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))


def main(arguments=None) -> int:
    """Examine the networks and print the numbers of outcomes; return 1 if a bound was contradicted, else 0."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--networks", type=int, default=10_000, help="number of different networks of the first kind")
    flags.add_argument("--decided", type=int, default=300, help="number of those that every method bounds")
    flags.add_argument("--seed", type=int, default=0, help="seed of the draws")
    chosen = flags.parse_args(arguments)

    from oracles import decided_networks, drawn_networks  # noqa: PLC0415 - loads TensorFlow, which --help does not need

    warnings.simplefilter("ignore")  # of weights that overflow, which is meant
    began = time.monotonic()
    outcomes, contradictions = drawn_networks.examine_all(chosen.networks, chosen.seed)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{sum(outcomes.values())} networks in {time.monotonic() - began:.0f} s: {counts}.")
    began = time.monotonic()
    outcomes, of_decided = decided_networks.examine_all(chosen.decided, chosen.seed)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    print(f"{chosen.decided} networks that every method bounds in {time.monotonic() - began:.0f} s: images {counts}.")
    contradictions += of_decided
    print(f"{len(contradictions)} contradictions.")
    print("\n".join(contradictions[:10]))
    return 1 if contradictions else 0


if __name__ == "__main__":
    sys.exit(main())
