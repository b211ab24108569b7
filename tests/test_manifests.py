"""The manifests of guides/scale.md: against the schemas of Kubernetes, each other, and what their pods would do."""

import copy
import json
import shlex

import kubernetes_validate
import printed
import pytest
import stored
import yaml

from tfrobust.commands import evaluate, train
from tfrobust.training.cluster_config import tf_config

GUIDE = printed.GUIDES / "scale.md"
BLOCKS = [block for block in printed.blocks(GUIDE.read_text("utf-8")) if block.kind == "yaml"]
MANIFESTS = [manifest for block in BLOCKS for manifest in yaml.safe_load_all(block.text)]
VERSIONS = ["1.31.0", kubernetes_validate.latest_version()]


def named(kind: str, name: str) -> dict:
    (match,) = [manifest for manifest in MANIFESTS if (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)]
    return copy.deepcopy(match)


def pod_of(job: dict) -> dict:
    return job["spec"]["template"]["spec"]


def environment_of(job: dict, index: int) -> dict[str, str]:
    """Return the variables of a pod, with what Kubernetes sets in an indexed Job."""
    (container,) = pod_of(job)["containers"]
    assert job["spec"]["completionMode"] == "Indexed"
    return {variable["name"]: variable["value"] for variable in container.get("env", [])} | {
        "JOB_COMPLETION_INDEX": str(index)
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_fit_the_schemas(version):
    assert [manifest["kind"] for manifest in MANIFESTS] == ["Service", "Job", "Job"]
    for manifest in MANIFESTS:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("path, value", stored.rows(globals(), "the_schemas_find_faults"))
def test_the_schemas_find_faults(path, value):
    manifest = named("Job", "train")
    node = manifest
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, VERSIONS[-1], strict=True)


def test_the_pods_of_the_training_find_each_other():
    job, service = named("Job", "train"), named("Service", "train")
    count = job["spec"]["completions"]
    assert job["spec"]["parallelism"] == count  # they wait for each other
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod_of(job)["subdomain"] == service["metadata"]["name"]
    assert pod_of(job)["restartPolicy"] == "Never"  # as podFailurePolicy requires
    for index in range(count):
        config = json.loads(tf_config(environment_of(job, index)))
        assert config["task"]["index"] == index
        # Kubernetes: the host name of a pod is JOB-INDEX, below the name of the service.
        assert config["cluster"]["worker"] == [f"train-{rank}.train:2222" for rank in range(count)]


def test_the_commands_of_the_pods_parse():
    (container,) = pod_of(named("Job", "train"))["containers"]
    words = container["command"]
    assert words[:3] == ["python", "-m", "tfrobust.train"]
    flags = train.parser().parse_args(words[3:])
    assert flags.gin_param == ["STRATEGY='multi_worker'"] and flags.workdir

    job = named("Job", "shards")
    (container,) = pod_of(job)["containers"]
    shards = []
    for index in range(job["spec"]["completions"]):
        text = container["args"][0].replace("$((JOB_COMPLETION_INDEX + 1))", str(index + 1))
        words = shlex.split(text)
        assert "$" not in text and words[:3] == ["python", "-m", "tfrobust.evaluate"]
        shards.append(evaluate.parser().parse_args(words[3:]).shard)
    assert shards == [(number, 8) for number in range(1, 9)]


def test_the_pods_share_a_folder():
    for job in (named("Job", "train"), named("Job", "shards")):
        (container,) = pod_of(job)["containers"]
        (mount,), (volume,) = container["volumeMounts"], pod_of(job)["volumes"]
        assert mount["name"] == volume["name"] and mount["mountPath"] == container["workingDir"]
        assert volume["persistentVolumeClaim"] == {"claimName": "shared"}
