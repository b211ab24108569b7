"""TF_CONFIG of this process: as given, or made from the variables of a Kubernetes Job or of a Slurm step."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping

from tfrobust.errors import InputError

PORT, WORKERS, ADDRESS = "TFROBUST_PORT", "TFROBUST_WORKERS", "TFROBUST_WORKER_ADDRESS"
INDEX = "JOB_COMPLETION_INDEX"
_STEP = ("SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
# Ports below the ephemeral ones. Each Slurm job starts at another, since jobs may share a node.
_FIRST_PORT, _PORTS = 20000, 10000


def tf_config(environment: Mapping[str, str]) -> str | None:
    """Return the TF_CONFIG of this process, or None if the environment describes no cluster.

    The first description counts: TF_CONFIG itself, then that of Kubernetes, then that of Slurm.

    Args:
        environment: variables of the process. Kubernetes: JOB_COMPLETION_INDEX, which an indexed Job sets,
            TFROBUST_WORKERS, the number of workers, and TFROBUST_WORKER_ADDRESS, the address of a worker with {index}
            in the place of its index, such as train-{index}.train:2222. Slurm: the variables of a step that srun
            starts, with block distribution, and optionally TFROBUST_PORT, the port of the first task on each node.

    Raises:
        InputError: a description is incomplete or contradicts itself.
    """
    if environment.get("TF_CONFIG"):
        return environment["TF_CONFIG"]
    if any(environment.get(name) for name in (INDEX, WORKERS, ADDRESS)):
        return _config(*_kubernetes(environment))
    if any(environment.get(name) for name in ("SLURM_JOB_ID", *_STEP)):
        return _config(*_slurm(environment))
    return None


def expand_nodes(text: str) -> list[str]:
    """Return the names in a Slurm node list in its order: n[08-10],m of n08, n09, n10, m.

    `tf.distribute.cluster_resolver.SlurmClusterResolver` sorts names as text, so that n10 precedes n9 and the addresses
    do not belong to Slurm's ranks; it also refuses text after a bracket.

    Raises:
        InputError: the text is no node list.
    """
    parts = re.findall(r"(?:[^,\[\]\s]|\[[\d,-]+\])+", text)
    try:
        if not parts or ",".join(parts) != text:
            raise ValueError
        choices = [[_numbers(piece) if odd else [piece] for odd, piece in _pieces(part)] for part in parts]
    except ValueError:
        raise InputError(f"SLURM_STEP_NODELIST is {text[:100]!r}; it lists nodes, such as n[01-03,07].") from None
    return ["".join(names) for options in choices for names in itertools.product(*options)]


def _pieces(part: str) -> list[tuple[bool, str]]:
    """Split a name into literal text and the insides of brackets, which are marked True."""
    return [(position % 2 == 1, piece) for position, piece in enumerate(re.split(r"\[(.*?)\]", part))]


def _numbers(ranges: str) -> list[str]:
    """Return the numbers of 01-03,07, each with the leading zeros of the first of its range."""
    names = []
    for span in ranges.split(","):
        first, _, last = span.partition("-")
        names += [f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    return names


def _config(index: int, addresses: list[str]) -> str:
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def _kubernetes(environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return the index of this worker and the addresses of all."""
    missing = [name for name in (INDEX, WORKERS, ADDRESS) if not environment.get(name)]
    if missing:
        raise InputError(
            f"a cluster in Kubernetes needs {INDEX} (set by a Job with completionMode: Indexed), {WORKERS}=2 and "
            f"{ADDRESS}=train-{{index}}.train:2222; missing: {', '.join(missing)}."
        )
    index, count = (_number(environment, name) for name in (INDEX, WORKERS))
    pattern = environment[ADDRESS]
    if "{index}" not in pattern or not re.fullmatch(r".+:\d+", pattern.replace("{index}", "0")):
        raise InputError(f"{ADDRESS} is {pattern[:100]!r}; it needs {{index}} and a port: train-{{index}}.train:2222.")
    if index >= count:
        raise InputError(f"{INDEX} is {index}, but {WORKERS} is {count}: set it to the completions of the Job.")
    return index, [pattern.replace("{index}", str(number)) for number in range(count)]


def _slurm(environment: Mapping[str, str]) -> tuple[int, list[str]]:
    """Return the rank of this task and the addresses of all."""
    missing = [name for name in _STEP if not environment.get(name)]
    if missing:
        raise InputError(
            f"this is a Slurm job, but no step of it: {', '.join(missing)} missing. Start the command by srun."
        )
    rank, nodes = _number(environment, "SLURM_PROCID"), expand_nodes(environment["SLURM_STEP_NODELIST"])
    tasks = _tasks(environment["SLURM_STEP_TASKS_PER_NODE"])
    if len(tasks) != len(nodes) or rank >= sum(tasks):
        raise InputError(
            f"Slurm's variables contradict each other: {len(nodes)} nodes, tasks on {len(tasks)} of them, rank {rank} "
            f"of {sum(tasks)}."
        )
    places = [(node, task) for node, count in enumerate(tasks) for task in range(count)]
    ids = [environment.get(name, "") for name in ("SLURM_NODEID", "SLURM_LOCALID")]
    if all(ids) and ids != [str(number) for number in places[rank]]:
        raise InputError(f"rank {rank} is not where srun --distribution=block puts it: start the command with that.")
    job = environment.get("SLURM_JOB_ID", "")
    first = _FIRST_PORT + int(job if job.isdecimal() else 0) % _PORTS
    first = _number(environment, PORT) if environment.get(PORT) else first
    return rank, [f"{nodes[node]}:{first + task}" for node, task in places]


def _tasks(text: str) -> list[int]:
    """Return the number of tasks on each node from Slurm's short form: 3(x2),1 of 3, 3, 1."""
    matches = [re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part) for part in text.split(",")]
    counts = [(int(match[1]), int(match[2] or 1)) for match in matches if match is not None]
    if len(counts) < len(matches):
        raise InputError(f"SLURM_STEP_TASKS_PER_NODE is {text[:100]!r}; it counts tasks, such as 3(x2),1.")
    return [tasks for tasks, nodes in counts for _ in range(nodes)]


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise InputError(f"{name} is {text[:50]!r}; it is a whole number.")
    return int(text)
