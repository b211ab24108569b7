"""N replicas over a global batch do what one does: every row of the method battery, the draws, the loop.

Each test has one process, which runs its case on one replica and on several.
"""

import numpy as np
import pytest
import stored
from distributed import replica_run
from faults import processes

from conformance import methods as battery

# Variants that share over replicas what the first row of their method does not.
VARIANTS = tuple(stored.table(globals(), "variants"))
# Row -> its case, where that is not ROW/sgd/attack.
OTHERWISE = stored.table(globals(), "otherwise")
CASES = [
    *((2, OTHERWISE.get(row, f"{row}/sgd/attack")) for row in (*replica_run.first_rows(), *VARIANTS)),
    *((2, f"ascl/sgd/given/{extra}") for extra in ("weighted", "difference")),
    pytest.param(2, "supervised/sgd/given/weighted", marks=pytest.mark.first),  # cheap, and needs the global count
    (2, "trades/sgd/given/foreign"),
    pytest.param(2, "adversarial_training_clips/sgd/attack", marks=pytest.mark.rest),
    *(pytest.param(2, f"{row}/sgd/attack/foreign", marks=pytest.mark.rest) for row in ("acl", "noisymix")),
    *((4, f"{row}/sgd/given") for row in ("supervised_contrastive", "byol")),
    (2, "swav_queue/sgd/given"),
]
# What a graph may refuse, of each kind: gathers beside the loop of an attack, running averages, adversaries of
# instances, mixing within groups. Several threads that each run their operations take long: four replicas are traced.
TRACED = ("ascl/sgd/attack", "byol/sgd/given/normalized", "rocl/sgd/attack", "noisymix/sgd/attack")
TRACED += ("trades_awp/sgd/given", "free_adversarial_training/sgd/attack")
TRACED += ("swav_queue/sgd/given",)  # its queue is used from the second step on, its prototypes move in it


@pytest.fixture
def outcomes(tmp_path):
    """A function of `replica_run` and its arguments -> what it saved: one, many, and plain of an extra."""

    def of(function: str, *arguments) -> list[dict]:
        output = tmp_path / "found.npz"
        ended = processes.run(f"distributed.replica_run:{function}", [str(output), *arguments], cwd=tmp_path)
        assert ended.code == 0, ended.err
        with np.load(output) as arrays:
            saved = dict(arrays)
        parts = ("one/", "many/", "plain/")
        return [under(saved, part) for part in parts if any(name.startswith(part) for name in saved)]

    return of


def under(arrays: dict, prefix: str) -> dict:
    selected = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    assert selected, f"nothing under {prefix}"
    return selected


def largest(arrays: dict) -> float:
    return max(float(np.abs(array).max()) for array in arrays.values())


def gap(arrays: dict, references: dict) -> float:
    """The largest difference between equally named arrays."""
    assert arrays.keys() == references.keys()
    return max(float(np.abs(array - references[name]).max()) for name, array in arrays.items())


@pytest.mark.parametrize(("replicas", "case"), CASES)
def test_replicas_give_the_update_of_one(outcomes, replicas, case):
    optimizer = case.split("/")[1]
    traced = replicas == 4 or case in TRACED
    single, several, *plain = outcomes("update", replicas, case, traced)
    before, theirs = under(single, "weight/before/"), under(single, "weight/after/")
    assert gap(under(several, "weight/before/"), before) == 0.0
    assert gap(theirs, before) > 1e-3
    assert gap(under(several, "weight/after/"), theirs) <= 1e-5 * max(1.0, largest(theirs))
    assert single["clock/after"] == several["clock/after"] == (2 if traced else 1)
    if optimizer == "sgd":
        gradients = under(single, "gradient/")
        assert gap(under(several, "gradient/"), gradients) <= 1e-5 * largest(gradients)
    logs, expected_logs = under(several, "log/"), under(single, "log/")
    assert logs.keys() == expected_logs.keys() and "loss" in logs and "accuracy" in logs
    for name, value in expected_logs.items():
        np.testing.assert_allclose(logs[name], value, rtol=3e-5, atol=3e-5, err_msg=name)
    if plain and not case.endswith(("normalized", "foreign")):  # or the extra would say nothing
        without = under(plain[0], "gradient/")
        assert gap(without, gradients) > 1e-2 * largest(without)
    if case.endswith("clipped"):
        norm = np.sqrt(sum(np.sum(np.square(array)) for array in gradients.values()))
        assert norm == pytest.approx(replica_run.EXTRAS["clipped"]["clip_norm"], rel=1e-4)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["arrays", "dataset"])
@pytest.mark.parametrize("row", ["supervised", "mixup", "simclr", "byol"])
def test_fit_shares_the_last_batch_equally(outcomes, row, kind):
    counts = [9, 12, 13, 16]  # of 9 and 13 one example is left out
    single, several = outcomes("fits", 2, row, counts, kind)
    for count in counts:
        theirs = under(single, f"{count}/weight/after/")
        assert gap(under(several, f"{count}/weight/after/"), theirs) <= 1e-5 * max(1.0, largest(theirs)), count


def test_a_mode_that_would_gather_inside_the_attack_is_refused_by_one_sentence(outcomes):
    """On one replica there is nothing to gather."""
    single, several = outcomes("refusals", 2)
    assert "adversarial_training_joint" in several and {str(sentence) for sentence in single.values()} == {""}
    for row, sentence in several.items():
        mode = battery.build(row, compiled=False).adversary.mode
        assert f"Batch-norm mode '{mode}' cannot gather" in str(sentence), row
        assert "synchronized=False" in str(sentence) and len(str(sentence)) <= 300


@pytest.mark.rest
def test_a_loss_scale_skips_the_step_in_which_another_replica_overflows(outcomes):
    for after in outcomes("overflow", 2):
        assert (after["scale"], after["updates"]) == (2.0**124, 0) and np.all(after["kernel"] == 0.0)


@pytest.mark.parametrize("replicas", [2, 4])
def test_draws_and_views_follow_from_the_row_in_the_global_batch(outcomes, replicas):
    rows = ["supervised_contrastive", "ascl_two_transforms"]
    single, several = outcomes("rows_of_batches", replicas, rows)
    assert single.keys() == several.keys()
    for name, value in single.items():
        np.testing.assert_allclose(several[name], value, atol=1e-6, err_msg=name)
    for name, drawn in under(single, "draws/").items():
        # Equal images: rows differ by their draws alone, and no replica draws what another has drawn.
        distinct = len(np.unique(drawn.reshape(len(drawn), -1), axis=0))
        assert distinct == (2 if name == "flip" else len(drawn)) or name == "crop", name
        shards = np.split(several[f"draws/{name}"], replicas)
        assert any(np.any(shard != shards[0]) for shard in shards[1:]), name
    images = battery.data(replica_run.GLOBAL_BATCH)[0]
    for row in rows:
        views = under(single, f"{row}/")
        first, second = (views[name] for name in sorted(views)[-2:])
        for moved in (*(view - images for view in views.values()), first - second):
            assert np.all(np.abs(moved).reshape(len(images), -1).max(axis=1) > 1e-3), row


def test_the_loop_on_two_replicas_stopped_and_resumed_is_the_loop_on_one(outcomes):
    single, pair = outcomes("loop", 2)
    assert single.keys() == pair.keys()
    assert single["clock/after"] == pair["clock/after"] == 6
    weights = under(single, "weight/after/")
    assert gap(under(pair, "weight/after/"), weights) <= 1e-5 * max(1.0, largest(weights))
    history = under(single, "log/")
    assert {"epoch", "loss", "contrastive", "accuracy", "learning_rate"} <= history.keys()
    assert history["epoch"].tolist() == [1, 2] and history["loss"][0] != history["loss"][1]
    for name, values in history.items():
        np.testing.assert_allclose(pair[f"log/{name}"], values, rtol=2e-5, atol=2e-5, err_msg=name)
