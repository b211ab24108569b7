"""Pre-training and a probe on two replicas are those on one, from the first step to the logistic regression."""

import numpy as np
import once
import pytest
from faults import processes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Return the arrays that one replica and two leave, by name."""

    def make(folder):
        children = [
            processes.start("distributed.two_stage_run:main", [replicas, str(folder / f"{replicas}.npz")], cwd=folder)
            for replicas in (1, 2)
        ]
        for ended in [child.wait() for child in children]:
            assert ended.code == 0, ended.err

    folder, by_replicas = once.shared_folder(tmp_path_factory, "two_stages_on_replicas", make), []
    for replicas in (1, 2):
        with np.load(folder / f"{replicas}.npz") as arrays:
            by_replicas.append(dict(arrays))
    assert [int(arrays.pop("replicas")) for arrays in by_replicas] == [1, 2]
    assert by_replicas[0].keys() == by_replicas[1].keys()
    return by_replicas


@pytest.mark.rest
@pytest.mark.parametrize("stage", ["first", "second", "fitted"])
def test_weights_are_those_of_one_replica(outcomes, stage):
    single, pair = ({name: array for name, array in outcome.items() if name.startswith(stage)} for outcome in outcomes)
    gap = max(float(np.abs(array - pair[name]).max()) for name, array in single.items())
    largest = max(float(np.abs(array).max()) for array in single.values())
    print(f"{stage}: weights differ by {gap:.1e}, the largest is {largest:.2g}")
    assert gap <= 1e-5 * max(1.0, largest)


def test_logs_are_those_of_one_replica(outcomes):
    single, pair = outcomes
    logs = {name for name in single if name.startswith("log/")}
    assert {"log/first_history/contrastive", "log/history/ce", "log/history/accuracy"} <= logs
    for name in logs:
        np.testing.assert_allclose(pair[name], single[name], rtol=3e-5, atol=3e-5, err_msg=name)
    assert single["log/history/ce"][0] != single["log/history/ce"][1]
