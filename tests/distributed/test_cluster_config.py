"""The TF_CONFIG that is made from variables of Kubernetes and of Slurm; TensorFlow's own resolver is the oracle."""

import json
import os

import pytest
import stored
import tensorflow as tf

from tfrobust.errors import InputError
from tfrobust.training import cluster, cluster_config

KUBERNETES = {
    "JOB_COMPLETION_INDEX": "1",
    "TFROBUST_WORKERS": "3",
    "TFROBUST_WORKER_ADDRESS": "train-{index}.train:2222",
}
SLURM = stored.table(globals(), "slurm")


def places(environment) -> tuple[int, list[str]]:
    config = json.loads(cluster_config.tf_config(environment))
    assert config["task"]["type"] == "worker" and list(config["cluster"]) == ["worker"]
    return config["task"]["index"], config["cluster"]["worker"]


def test_the_workers_of_a_kubernetes_job():
    addresses = ["train-0.train:2222", "train-1.train:2222", "train-2.train:2222"]
    assert places(KUBERNETES) == (1, addresses)
    pattern = {"TFROBUST_WORKER_ADDRESS": "127.0.0.1:2345{index}"}
    assert places(KUBERNETES | pattern) == (1, ["127.0.0.1:23450", "127.0.0.1:23451", "127.0.0.1:23452"])


def test_the_tasks_of_a_slurm_step():
    # 20000 + 123456 % 10000, and one more for the second task of a node.
    assert places(SLURM) == (2, ["n01:23456", "n01:23457", "n02:23456", "n07:23456"])
    assert places(SLURM | {"TFROBUST_PORT": "9000"})[1] == ["n01:9000", "n01:9001", "n02:9000", "n07:9000"]
    assert places(SLURM | {"SLURM_NODEID": "1", "SLURM_LOCALID": "0"})[0] == 2


@pytest.mark.parametrize("nodes, tasks", stored.rows(globals(), "tensorflows_resolver_finds_the_same_workers"))
def test_tensorflows_resolver_finds_the_same_workers(monkeypatch, nodes, tasks):
    """On a node without an accelerator, it needs one pretended accelerator per task."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    variables = {"SLURM_PROCID": "0", "SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": tasks}
    count = len(places(variables)[1])
    for name, value in {**variables, "SLURM_STEP_NUM_TASKS": str(count)}.items():
        monkeypatch.setenv(name, value)
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=9000, gpus_per_node=8, gpus_per_task=1, auto_set_gpu=False
    )
    places_of_ranks = [
        places(variables | {"TFROBUST_PORT": "9000", "SLURM_PROCID": str(rank)}) for rank in range(count)
    ]
    assert [rank for rank, _ in places_of_ranks] == list(range(count))
    assert [addresses for _, addresses in places_of_ranks] == [resolver.cluster_spec().as_dict()["worker"]] * count


@pytest.mark.parametrize("text, names", stored.rows(globals(), "node_lists_in_slurms_order"))
def test_node_lists_in_slurms_order(text, names):
    assert cluster_config.expand_nodes(text) == names


@pytest.mark.parametrize("text", ["n[1-", "n[]", "n[1-a]", "n]1[", "a,,b", ",a", "n[1-2-3]", "n[[1]]", "a b"])
def test_what_is_no_node_list(text):
    with pytest.raises(InputError, match="SLURM_STEP_NODELIST is .*such as n"):
        cluster_config.expand_nodes(text)


def test_the_first_description_counts():
    assert cluster_config.tf_config({}) is None and cluster_config.tf_config({"PATH": "/bin"}) is None
    assert places(SLURM | KUBERNETES)[1][0] == "train-0.train:2222"
    assert cluster_config.tf_config(SLURM | KUBERNETES | {"TF_CONFIG": "{}"}) == "{}"


@pytest.mark.parametrize("missing", KUBERNETES)
def test_half_a_kubernetes_job_is_one_line(missing):
    partial = {name: value for name, value in KUBERNETES.items() if name != missing}
    with pytest.raises(InputError, match=rf"completionMode: Indexed.*missing: {missing}\.$") as caught:
        cluster_config.tf_config(partial | SLURM)  # it does not fall back
    assert len(str(caught.value)) <= 300


@pytest.mark.parametrize("missing", ["SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE"])
def test_half_a_slurm_step_is_one_line(missing):
    with pytest.raises(InputError, match=rf"no step of it: {missing} missing\. Start the command by srun"):
        cluster_config.tf_config({name: value for name, value in SLURM.items() if name != missing})


@pytest.mark.parametrize("variables, message", stored.rows(globals(), "a_job_or_step_that_contradicts_itself"))
def test_a_kubernetes_job_or_a_slurm_step_that_contradicts_itself(variables, message):
    with pytest.raises(InputError, match=message):
        cluster_config.tf_config(variables)


def test_joining_meets_the_workers_and_tells_tensorflow(monkeypatch):
    """TensorFlow reads TF_CONFIG when the strategy is made: the cluster is there by then, and the workers have met."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "TF_CONFIG", "TFROBUST_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TF_CONFIG", "")  # restored afterwards
    for name, value in KUBERNETES.items():
        monkeypatch.setenv(name, value)
    met, seen = [], []
    monkeypatch.setattr(cluster, "_meet", lambda address, peers: met.append((address, peers)))
    monkeypatch.setattr(cluster, "_joined", type("Event", (), {"set": lambda self: None})())
    monkeypatch.setattr(
        tf.distribute, "MultiWorkerMirroredStrategy", lambda: seen.append(json.loads(os.environ["TF_CONFIG"]))
    )
    cluster.join()
    assert met == [("train-1.train:2222", ["train-0.train:2222", "train-2.train:2222"])]
    assert seen[0]["task"] == {"type": "worker", "index": 1} and len(seen[0]["cluster"]["worker"]) == 3
