"""The benchmarks but that of the step: their arithmetic, that their peers are what they say, and that all run."""

import re
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from oracles import augmix as pillow
from oracles import puzzlemix as oracle
from tfrobust import corruptions
from tfrobust.augment.augmix import OPERATIONS

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


def timed(tools, name, rounds):
    stub = object.__new__(tools._peers.Side)
    stub.name, stub.rounds, stub.count = name, rounds, 8
    return stub


def test_ratio_is_how_many_times_as_fast_we_are_by_medians(attacks):
    rounds = [{"wall": wall, "processor": 1.0, "right": 7} for wall in (1.0, 2.0, 90.0)]
    ours = timed(attacks, "tfrobust, perturb", rounds)
    peer = timed(attacks, "peer", [{"wall": wall, "processor": 2.0, "right": 8} for wall in (2.0, 5.0, 90.0)])
    value, low, high = attacks.bench_attacks.ratio(ours, peer)
    assert value == 2.5 and 1.0 <= low <= 2.0 <= high <= 2.5
    assert attacks.bench_attacks.within_limits([ours, peer], [ours])
    peer.rounds[1]["wall"] = 2.2
    assert not attacks.bench_attacks.within_limits([ours, peer], [ours])
    head, first, second = attacks.bench_attacks.rows([ours, peer], [ours])
    assert head[4] == "ratio of perturb" and first[4] == ""
    assert second[:5] == ("peer", "3.6", "250.0", "8 of 8", "1.10")


def test_a_members_time_is_its_median_and_the_rest_is_what_no_member_took(attacks):
    rounds = [{"wall": wall, "processor": 1.0, "right": 3, "members": {"a": wall - 1}} for wall in (3.0, 9.0, 4.0)]
    ours, official = timed(attacks, "tfrobust", rounds), timed(attacks, "official", [r | {"wall": 8.0} for r in rounds])
    official.rounds[0]["members"] = {"a": 1.0, "b": 2.0}
    bound = timed(attacks, "bound", [r | {"wall": 3.2, "members": {}} for r in rounds])
    tool = attacks.bench_autoattack
    seconds = tool.seconds
    assert (seconds(ours, "a"), seconds(ours, "the rest"), seconds(ours, "all")) == (3.0, 1.0, 4.0)
    assert seconds(official, "b") is None  # it did not run in every round
    assert tool.within_limits("digits", [ours, official, bound]) and not tool.within_limits(
        "resnet20", [ours, official, bound]
    )
    official.rounds = [r | {"wall": 6.0} for r in official.rounds]
    assert not tool.within_limits("digits", [ours, official]) and tool.within_limits("digits", [ours, bound])
    head, *lines = tool.rows([ours, official, bound])
    lines = {line[0]: line[1:] for line in lines}
    assert head[1:] == ("tfrobust", "official", "bound", "ratio to official", "ratio to bound")
    assert lines["b"] == ("-", "-", "-", "", "") and lines["all"] == ("4.00", "6.00", "3.20", "0.67", "1.25")


def test_every_pass_of_an_attack_is_counted_by_its_kind_and_the_size_of_its_batch(load):
    peers = load("_peers", "_recipes", "_peers_tensorflow")._peers_tensorflow
    counter = peers.CountedPasses(lambda images, training: tf.reduce_sum(images, [1, 2]), 6)

    @tf.function
    def passes(images):
        with tf.GradientTape() as tape:
            tape.watch(images)
            values = counter(images)
        return tape.gradient(values, images) + counter(images[:2])[0]

    for _ in range(3):
        passes(tf.zeros([5, 2, 2, 1]))
    calls = {name: {size: n for size, n in enumerate(sizes.numpy()) if n} for name, sizes in counter.calls.items()}
    assert calls == {"forward": {2: 3}, "gradient": {5: 3}}


def test_training_shows_how_many_times_as_fast_the_step_is(load):
    tools = load("_peers", "bench_step", "bench_training")
    tool = tools.bench_training
    walls = {tool.TFROBUST: (1.0, 2.0, 4.0, 4.0, 4.0, 4.0), tool.PEER: (1.0, 1.0, 8.0, 6.0, 6.0, 20.0)}
    sides = [
        timed(tools, name, [{"wall": wall, "processor": 2.0, "loss": 2.5} for wall in times])
        for name, times in walls.items()
    ]
    ours, peer = tool.rows(sides)[1:]
    assert ours == (tool.TFROBUST, "4000", "2000", "2.500", "1.50", "0.50 - 5.00", "6")
    assert peer[1:] == ("6000", "2000", "2.500", "", "", "6")


def test_how_many_times_as_fast_is_the_median_over_the_rounds(load):
    tool = load("_peers", "bench_step", "bench_vit").bench_vit

    def side(name, *times):
        rounds = [{"members": {"forward": seconds, "gradient": 2 * seconds}} for seconds in times]
        return types.SimpleNamespace(name=name, rounds=rounds)

    ours, peer = side("tfrobust", 1.0, 2.0, 4.0, 4.0, 4.0, 4.0), side(tool.PEER, 1.0, 1.0, 8.0, 6.0, 6.0, 20.0)
    assert tool.ratio(ours, peer, "gradient") == (1.5, 0.5, 5.0)
    first, second, *_ = tool.rows([ours, peer])[1:]
    assert first == ("tfrobust", "forward", "4000.00", "1.50", "0.50 - 5.00", "6") and second[1] == "gradient"
    assert tool.rows([ours])[1][3:] == ("", "", "6")


@pytest.fixture
def task(attacks, tmp_path):
    arrays = np.arange(12, dtype=np.float32).reshape(3, 2, 2, 1), np.arange(3), np.eye(3, dtype=np.float32)
    stored = attacks._peers.Task("digits", *arrays, {"0/kernel": np.ones(2), "0/bias": np.zeros(2)}, {"batch": 2})
    stored.write(tmp_path)
    return stored


def test_a_task_survives_the_disk_and_tells_another_network(attacks, task, tmp_path):
    read = attacks._peers.Task.read(tmp_path)
    assert read.network == "digits" and read.settings == {"batch": 2} and list(read.weights) == ["0/kernel", "0/bias"]
    np.testing.assert_array_equal(read.images, task.images)
    assert read.batches() == [slice(0, 2), slice(2, 4)]
    read.check(task.logits + 1e-5)
    with pytest.raises(SystemExit, match="logits differ"):
        read.check(task.logits + 0.1)


@pytest.mark.usefixtures("task")
def test_sides_take_turns_in_processes_and_a_broken_one_is_reported(attacks, tmp_path, monkeypatch):
    (tmp_path / "sides.py").write_text(
        "calls = []\n"
        "def good(task):\n"
        "    print('noise of a library')\n"
        "    return lambda: calls.append(1), lambda _: {'right': len(task.images), 'calls': len(calls)}, 'good 1.0'\n"
        "def bad(task):\n"
        "    import not_installed\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    requested = {name: (f"sides:{name}", sys.executable) for name in ("good", "bad")}
    (running,), messages = attacks._peers.start(requested, tmp_path)
    assert messages[0] == "good: good 1.0" and re.match("bad: does not run: .*not_installed", messages[1], re.DOTALL)
    answer = running.run()
    running.close()
    assert (answer["right"], answer["calls"]) == (3, 2) and running.rounds == [answer]  # the first warmed up
    assert 0 <= answer["wall"] < 1 and running.median() == answer["wall"]


# ------------------------------------------------------------------------------------ corruptions, views, mixing


@pytest.fixture
def corrupting(load):
    return load("_peers", "bench_step", "_peers_corruptions", "bench_corruptions")


def side(name, *members):
    return types.SimpleNamespace(name=name, rounds=[{"members": seconds} for seconds in members])


def test_ratios_are_over_what_runs_in_the_peer(corrupting):
    ours = side("tfrobust", {"fog": 1.0, "snow": 2.0, "glass_blur": 9.0}, {"fog": 3.0, "snow": 2.0, "glass_blur": 9.0})
    same_work = side("tfrobust, peer's constants", *[{"fog": 2.0, "snow": 2.0, "glass_blur": 9.0}] * 2)
    peer = side("imagecorruptions", {"fog": 8.0, "snow": 12.0}, {"fog": 8.0, "snow": 8.0})
    sides, tool = [ours, same_work, peer], corrupting.bench_corruptions
    assert tool.common(sides) == ["snow", "fog"] and tool.seconds(ours, ["fog", "snow"]) == 4.0
    assert tool.smallest(sides) == 4.5 and tool.smallest(sides[:2]) == float("inf")
    lines = {line[0]: line[1:] for line in tool.rows(sides)}
    assert lines["seconds"][3:] == ("ratio", "ratio") and lines["fog"] == ("2.000", "2.000", "8.000", "4.0", "4.0")
    assert lines["glass_blur"] == ("9.000", "9.000", "-", "-", "-")
    assert lines[tool.ALL_SHARED] == lines["of them without frost"] == ("4.000", "4.000", "18.000", "4.5", "4.5")
    assert tool.rows(sides[:2])[1] == ("glass_blur", "9.000", "9.000")


def test_a_corruption_that_fails_is_named_and_left_out(corrupting):
    def corrupt(name, severity):
        if name == "fog":
            raise AttributeError("np.float_ is gone")

    task = corrupting._peers.Task("none", np.zeros(1), np.zeros(1), np.zeros(1), {}, {"names": ["fog", "snow"]})
    run, outcome = corrupting._peers_corruptions._sides(task, corrupt)
    result = outcome(run())
    assert list(result["members"]) == ["snow"] and result["errors"] == {"fog": "AttributeError: np.float_ is gone"}


def test_the_corruptions_are_those_of_the_benchmark(corrupting):
    assert corrupting.bench_corruptions.NAMES == corruptions.NAMES
    assert corrupting._peers_corruptions.SEVERITIES == corruptions.SEVERITIES


def test_ratios_and_shares_are_those_of_medians(load):
    tools = load("_recipes", "bench_step", "bench_augmix", "bench_views", "bench_token_removal")
    taken = {"tfrobust": [(1.0, 0.5), (2.0, 1.0), (9.0, 1.0)], "Pillow": [(4.0, 1.5), (4.0, 1.5), (8.0, 1.5)]}
    lines, ratio = tools.bench_augmix.rows(taken, 6)
    assert ratio == 1.5
    assert lines[1:] == [
        ("processor time", "6", "4", "1.50", "1.50 - 3.00"),
        ("wall time", "3", "2", "2.00", "0.89 - 4.00"),
    ]
    taken = {"views": [(0.2, 0.1), (0.4, 0.1), (0.9, 0.1)], "passes": [(2.0, 1.0), (2.0, 2.0), (8.0, 2.0)]}
    lines, share = tools.bench_views.rows(taken, 8)
    assert share == 0.05
    assert lines[1:] == [
        ("processor time", "80", "100.0", "2000.0", "5.00 %"),
        ("wall time", "20", "400.0", "2000.0", "20.00 %"),
    ]
    taken = {"at once": [(1.0, 2.0), (9.0, 2.5), (2.0, 4.0)], "one by one": [(12.0, 1.0), (8.0, 10.0), (10.0, 5.0)]}
    assert tools.bench_token_removal.ratios(taken) == {"at once": (1.0, 1.0), "one by one": (5.0, 2.0)}


def test_the_peer_of_augmix_makes_views_of_its_chains(load, monkeypatch):
    """With an operation that paints all white, a view lies between the picture and white by the share of the chains."""
    tool = load("_recipes", "bench_step", "bench_augmix").bench_augmix
    pixels = tool.pictures(3, 9)
    calls = []
    white = {
        name: lambda image, parameter: calls.append(parameter) or image.point(lambda _: 255) for name in OPERATIONS
    }
    monkeypatch.setattr(pillow, "OPERATIONS", white)
    for picture, view in zip(pixels, tool.make_official(pixels, OPERATIONS)(), strict=True):
        share = (view - picture / 255) / (1 - picture / 255).clip(1e-9)
        share = share[picture < 250]
        assert 0 <= share.min() and np.ptp(share) < 1e-3 and share.max() <= 1 + 1e-3
    assert 9 <= len(calls) <= 27


def test_a_gap_of_puzzle_mix_is_the_excess_over_the_best_mask(load):
    tool = load("_recipes", "bench_step", "bench_puzzlemix").bench_puzzlemix
    generator = np.random.default_rng(0)
    terms = [generator.uniform(size=(3, *shape)) for shape in ((2, 2, 3), (1, 2), (2, 1))]
    masks = np.stack([oracle.minimum_cut(*problem) for problem in zip(*terms, strict=True)])
    np.testing.assert_allclose(tool.gaps(terms, masks), 0, atol=1e-12)
    second = [part[1] for part in terms]
    best = oracle.value(*second, masks[1])
    masks[1, 0, 0] = (masks[1, 0, 0] + 0.5) % 1.5
    excess = oracle.value(*second, masks[1]) / best - 1
    assert excess > 0
    np.testing.assert_allclose(tool.gaps(terms, masks), [0, excess, 0], atol=1e-12)
