"""The benchmarks but that of the step: their arithmetic, that their peers are what they say, and that all run."""

import re
import types

import pytest

NUMBER, ANY = r"[\d.]+", r"\S+"

# Name -> (flags, exit codes, what is printed); 1: so little work is not worth a graph.
RUNS = {
    "bench_step": (
        "--parts=step,pipeline,memory --encoder=digits --batch=8 --rounds=3 --attack_steps=2 --methods=trades,simclr "
        "--memory_steps 1 3",
        (0,),
        [
            rf"trades +8x8x1 +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER} - {NUMBER} +{NUMBER} +3 +1 ",
            rf"simclr +8x8x1 +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER} - {NUMBER} +{NUMBER} +3 +1 ",
            rf"simclr +8x8x1 +{NUMBER} +{NUMBER} +{NUMBER}% +{NUMBER} +3 ",
            r"\nOf a step .* simclr \d+\.\d%; aim: under 15%",
            r"attack steps +MB\n1 +\d+\n3 +\d+\n",
        ],
    ),
    "bench_attacks": (
        "--parts=full --rounds=1 --steps=2 --batch=4 --count=4",
        (0,),
        [rf"tfrobust, {face} +{NUMBER} +{NUMBER} +4 of 4 " for face in ("perturb", "evaluation")],
    ),
    "bench_iteration": (
        "--batches 2 --calls=1 --rounds=1",
        (0,),
        [rf"\n{way} +2 +{NUMBER} +{NUMBER}( +{NUMBER})?\n" for way in ("pass", "own", "own, XLA")]
        + [rf"\n\w*Conv2DBackpropInput +{NUMBER} %\n"],
    ),
    "bench_training": (
        "--parts=trades --rounds=2 --steps=1 --batch=2",
        (0,),
        [rf"\ntfrobust +{NUMBER} +{NUMBER} +{NUMBER} +2\n"],
    ),
    "bench_augmix": (
        "--rounds=2 --batch=4 --side=8",
        (0, 1),
        [rf"\nprocessor time +\d+ +\d+ +{NUMBER} +{NUMBER} - {NUMBER}\n"],
    ),
    "bench_corruptions": (
        "--names=brightness,contrast --rounds=1 --count=4 --batch=2 --side=8",
        (0,),
        [rf"\ncontrast +{NUMBER} +{NUMBER}\nall that run in the peer +{NUMBER} +{NUMBER}\nof them without"],
    ),
    "bench_puzzlemix": (
        "--pairs=3 --rounds=1 --batch=32 --encoder=digits",
        (0,),
        [rf"\n16x16 +{ANY} +{ANY} +{ANY} +{NUMBER}% +{ANY}\n", rf"\npuzzlemix, mean +\d+ +{NUMBER} +{NUMBER}\n"],
    ),
    "bench_token_removal": (
        "--rounds=1 --calls=20 --batch=4 --length=5 --width=16",
        (0, 1),
        [rf"\n{way} +\d+ +{NUMBER} +{NUMBER}\n" for way in ("at once", "by place", "one by one")],
    ),
    "bench_vit": (
        "--parts=vit_tiny --rounds=2 --batch=2",
        (0,),
        [rf"\ntfrobust +{face} +{NUMBER} +2\n" for face in ("forward", "gradient")],
    ),
    "bench_views": (
        "--rounds=1 --batch=1 --side=8 --blur=1",
        (0, 1),
        [rf"\nprocessor time +\d+ +{NUMBER} +{NUMBER} +{NUMBER} %\n"],
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_it_runs_and_leaves_nothing(run_tool, tmp_path, name):
    flags, codes, printed = RUNS[name]
    ended = run_tool(name, *flags.split())
    assert ended.code in codes and "Traceback" not in ended.err, ended.out + ended.err
    for pattern in printed:
        assert re.search(pattern, ended.out), ended.out
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------------------------------- attacks


@pytest.fixture
def attacks(load):
    return load("_peers", "bench_step", "bench_attacks", "bench_autoattack")


# ------------------------------------------------------------------------------------ corruptions, views, mixing


def side(name, *members):
    return types.SimpleNamespace(name=name, rounds=[{"members": seconds} for seconds in members])
