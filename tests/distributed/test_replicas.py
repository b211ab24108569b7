"""N replicas over a global batch do what one does: every row of the method battery, the draws, the loop.

Tolerances of DESIGN section 6. One process per number of replicas, for all tests of this file.
"""

import functools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from distributed import replica_run

from conformance import methods as battery

SCRIPT = pathlib.Path(replica_run.__file__)
RUNS = [(replicas, case) for replicas in (2, 4) for case in replica_run.cases_of(replicas)]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Number of replicas -> what `replica_run` saved, by case and name."""
    folder = tmp_path_factory.mktemp("replicas")

    @functools.cache
    def of(replicas: int) -> dict:
        output = folder / f"{replicas}.npz"
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        command = [sys.executable, str(SCRIPT), str(replicas), str(output)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200)
        assert done.returncode == 0, done.stderr[-4000:]
        with np.load(output) as arrays:
            return dict(arrays)

    return of


def under(arrays: dict, prefix: str) -> dict:
    found = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    assert found, f"nothing under {prefix}"
    return found


def largest(arrays: dict) -> float:
    return max(float(np.abs(array).max()) for array in arrays.values())


def gap(one: dict, other: dict) -> float:
    """The largest difference between equally named arrays."""
    assert one.keys() == other.keys()
    return max(float(np.abs(array - other[name]).max()) for name, array in one.items())


def check_case(one: dict, many: dict, case: str, printed: str) -> None:
    """Weights, first gradients and logs of a case agree; and none of it says nothing."""
    ours, theirs = under(many, f"{case}/weight/after/"), under(one, f"{case}/weight/after/")
    before = under(one, f"{case}/weight/before/")
    assert gap(under(many, f"{case}/weight/before/"), before) == 0.0
    assert gap(theirs, before) > 1e-3
    weights, limit = gap(ours, theirs), 1e-5 * max(1.0, largest(theirs))
    gradients = 0.0
    if "/sgd/" in case:
        own = under(one, f"{case}/gradient/")
        gradients = gap(under(many, f"{case}/gradient/"), own) / largest(own)
    logs, wanted = under(many, f"{case}/log/"), under(one, f"{case}/log/")
    assert logs.keys() == wanted.keys() and "loss" in logs and "accuracy" in logs
    # For the closing note: pytest -rP shows it.
    print(f"{printed}: weights {weights:.1e}, first gradient {gradients:.1e} of its largest entry")
    assert weights <= limit
    assert gradients <= 1e-5
    for name, value in wanted.items():
        np.testing.assert_allclose(logs[name], value, rtol=3e-5, atol=3e-5, err_msg=name)


@pytest.mark.parametrize(("replicas", "case"), RUNS)
def test_replicas_give_the_update_of_one(outcomes, replicas, case):
    check_case(outcomes(1), outcomes(replicas), case, f"{replicas} replicas, {case}")


def test_every_row_and_every_method_runs():
    methods = {type(battery.build(row, compiled=False)) for row in battery.ROWS}
    for replicas in (2, 4):
        ran = {case.split("/")[0] for case in replica_run.cases_of(replicas)}
        assert {type(battery.build(row, compiled=False)) for row in ran} == methods
        assert replicas == 4 or ran == set(battery.ROWS)


@pytest.mark.parametrize("extra", replica_run.EXTRAS)
def test_clipping_and_sample_weights_are_those_of_the_global_batch(outcomes, extra):
    case = f"{replica_run.EXTRA_ROW}/sgd/given"
    check_case(outcomes(1), outcomes(2), f"{case}/{extra}", f"2 replicas, {extra}")
    plain, changed = under(outcomes(1), f"{case}/gradient/"), under(outcomes(1), f"{case}/{extra}/gradient/")
    norm = np.sqrt(sum(np.sum(np.square(array)) for array in changed.values()))
    if extra == "clipped":
        assert norm == pytest.approx(replica_run.EXTRAS[extra]["clip_norm"], rel=1e-4)
    assert gap(plain, changed) > 1e-2 * largest(plain)


@pytest.mark.parametrize("row", replica_run.NORMALIZED_ROWS)
def test_batch_norm_in_projections_sees_the_global_batch(outcomes, row):
    check_case(outcomes(1), outcomes(2), f"{row}/sgd/given/normalized", f"2 replicas, {row}, normalized projection")


def test_a_mode_that_would_gather_inside_the_attack_is_refused_by_one_sentence(outcomes):
    refused = under(outcomes(2), "refused/")
    assert "adversarial_training_joint" in refused
    for row, sentence in refused.items():
        mode = battery.build(row, compiled=False).adversary.mode
        assert f"Batch-norm mode '{mode}' cannot gather" in str(sentence), row
        assert "synchronized=False" in str(sentence) and len(str(sentence)) <= 300


def test_one_replica_may_attack_in_batch_mode_with_synchronized_batch_norm(outcomes):
    assert {str(sentence) for sentence in under(outcomes(1), "refused/").values()} == {""}


@pytest.mark.parametrize("replicas", [2, 4])
def test_draws_follow_from_the_row_in_the_global_batch(outcomes, replicas):
    one, many = under(outcomes(1), "draws/"), under(outcomes(replicas), "draws/")
    assert one.keys() == many.keys()
    for name, rows in one.items():
        np.testing.assert_allclose(many[name], rows, atol=1e-6, err_msg=name)
        # Equal images: rows differ by their draws alone, and no replica draws what another has drawn.
        distinct = len(np.unique(rows.reshape(len(rows), -1), axis=0))
        assert distinct == (2 if name == "flip" else len(rows)) or name == "crop", name
        shards = np.split(many[name], replicas)
        assert any(np.any(shard != shards[0]) for shard in shards[1:]), name


@pytest.mark.parametrize("row", ["supervised_contrastive", "ascl_two_transforms"])
def test_transformed_views_are_those_of_one_replica(outcomes, row):
    one, many = under(outcomes(1), f"views/{row}/"), under(outcomes(2), f"views/{row}/")
    images = battery.data(replica_run.GLOBAL_BATCH)[0]
    assert one.keys() == many.keys() and len(one) >= 2
    for name, view in one.items():
        np.testing.assert_allclose(many[name], view, atol=1e-6, err_msg=name)
        moved = np.abs(view - images).reshape(len(images), -1).max(axis=1)
        assert np.all(moved > 1e-3), name
    first, second = (one[name] for name in sorted(one)[-2:])
    assert np.all(np.abs(first - second).reshape(len(images), -1).max(axis=1) > 1e-3)


def test_the_loop_on_two_replicas_stopped_and_resumed_is_the_loop_on_one(outcomes):
    one, two = under(outcomes(1), "loop/"), under(outcomes(2), "loop/")
    assert one.keys() == two.keys()
    assert int(one["step"]) == int(two["step"]) == 6
    weights = under(one, "weight/after/")
    assert gap(under(two, "weight/after/"), weights) <= 1e-5 * max(1.0, largest(weights))
    history = under(one, "log/")
    assert {"epoch", "loss", "contrastive", "accuracy", "learning_rate"} <= history.keys()
    assert history["epoch"].tolist() == [1, 2] and history["loss"][0] != history["loss"][1]
    for name, values in history.items():
        np.testing.assert_allclose(two[f"log/{name}"], values, rtol=2e-5, atol=2e-5, err_msg=name)
