"""Two real worker processes on loopback: the weights of one process, through a lost worker, a signal, a lost chief.

No test measures speed: workers halt at a step until they are told to go on, and every wait ends in a kill.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import local_cluster
import numpy as np
import pytest
import stored
from distributed import multi_worker_run
from faults import processes
from faults.whole_run import TRAIN

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATIENCE = 240  # seconds until a process that should have ended is killed, and the test fails

# Smooth and tiny: no kink, no sign and no rank that would turn the rounding of a sum into a jump.
PARAMETERS = tuple(stored.table(globals(), "parameters"))
STEPS = 10


# --------------------------------------------------------------------------------------------------- processes


def by_tf_config(index: int, ports: list[int]) -> dict[str, str]:
    return {"TF_CONFIG": local_cluster.environment(index, ports)["TF_CONFIG"]}


def by_slurm(index: int, ports: list[int]) -> dict[str, str]:
    """Two tasks on one node, as srun starts them; `adjacent_ports` are needed."""
    step = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NUM_TASKS": "2"}
    task = {"SLURM_PROCID": str(index), "SLURM_NODEID": "0", "SLURM_LOCALID": str(index)}
    return {"TF_CONFIG": "", "SLURM_JOB_ID": "77", **step, **task, "TFROBUST_PORT": str(ports[0])}


def by_kubernetes(index: int, ports: list[int]) -> dict[str, str]:
    """A worker of an indexed Job, but at a port of its own, since all are on one host; `adjacent_ports` are needed."""
    variables = {"TF_CONFIG": "", "JOB_COMPLETION_INDEX": str(index), "TFROBUST_WORKERS": "2"}
    return {**variables, "TFROBUST_WORKER_ADDRESS": f"127.0.0.1:{ports[0] // 10}{{index}}"}


def adjacent_ports() -> list[int]:
    """Two free ports, of which the first ends in 0."""
    while True:
        (port,) = local_cluster.free_ports(1)
        port -= port % 10
        with contextlib.suppress(OSError), socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
            return [port, port + 1]


@contextlib.contextmanager
def gang(function: str, arguments: list, folder, halted: int | None = None, halt: str = "", variables=by_tf_config):
    """Two workers, one of which may halt, that outlive neither the block nor our patience."""
    ports, started = adjacent_ports(), []
    watch = threading.Timer(PATIENCE, lambda: [worker.kill() for worker in started])
    watch.start()
    try:
        for index in range(2):
            environment = variables(index, ports)
            if index == halted:
                environment["HALT"] = halt
            started.append(processes.start(function, arguments, cwd=folder, environment=environment))
        yield started
    finally:
        watch.cancel()
        for worker in started:
            worker.kill()


def train_flags(workdir: str, strategy: str) -> list[str]:
    values = [*PARAMETERS, f"NAME='{workdir}'", f"STRATEGY='{strategy}'"]
    files = ["--gin_file=gin/ascl.gin", "--gin_import=distributed.multi_worker_run"]
    return [*files, f"--workdir={workdir}", "--export_dir=exported", *(f"--gin_param={value}" for value in values)]


def wait_for(file: pathlib.Path, workers=()) -> None:
    """Until a worker has halted."""
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        ended = [worker.wait() for worker in workers if not alive(worker.pid)]
        assert not ended, ended
        assert time.monotonic() < deadline, f"there is no {file.name}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def steps_of(workdir: pathlib.Path) -> list[int]:
    return sorted(int(folder.name.removeprefix("step-")) for folder in (workdir / "checkpoints").glob("step-*"))


def variables(folder: pathlib.Path, name: str) -> dict[str, np.ndarray]:
    """All floating variables of a run's last checkpoint, by their place in it."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(folder / name / "checkpoints" / f"step-{STEPS:08d}" / "variables"))
    tensors = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map() if "OBJECT_GRAPH" not in key}
    return {key: value for key, value in tensors.items() if np.asarray(value).dtype.kind == "f"}


def published(folder: pathlib.Path, name: str) -> tuple[np.ndarray, dict]:
    """Return the only version's outputs for some images, and its report."""
    import tensorflow as tf

    (version,) = [entry for entry in (folder / "exported" / name).iterdir() if entry.name.isdigit()]
    serve = tf.saved_model.load(str(version)).signatures["serving_default"]
    images = np.linspace(0, 1, 4 * 64, dtype=np.float32).reshape(4, 8, 8, 1)
    report = json.loads((version / "assets.extra" / "robustness_report.json").read_text())
    return serve(images=tf.constant(images))["logits"].numpy(), report


# ------------------------------------------------------------------------------------------------- the training


def test_two_workers_survive_what_one_process_never_met(tmp_path):
    """kill -9 of a worker, SIGTERM, kill -9 of the chief, each followed by a restart of all."""
    halt, command = tmp_path / "halt", (TRAIN, [train_flags("two", "multi_worker")])

    # A worker dies after step 3: the chief says so, and ends.
    with gang(*command, tmp_path, halted=1, halt=f"3:{halt}") as workers:
        wait_for(halt, workers)
        workers[1].kill()
        check_survivor(workers[0].wait(), "worker 0 of 2")
    assert steps_of(tmp_path / "two")[-1] == 2
    halt.unlink()

    # It goes on from step 2. A signal to one worker stops both after the same step.
    with gang(*command, tmp_path, halted=1, halt=f"2:{halt}") as workers:
        wait_for(halt, workers)
        os.kill(workers[1].pid, signal.SIGTERM)
        halt.unlink()
        ends = [worker.wait() for worker in workers]
    assert [end.code for end in ends] == [75, 75], ends
    assert f"stopped by a signal to another worker after step 4 of {STEPS}" in ends[0].err
    assert f"stopped by SIGTERM after step 4 of {STEPS}" in ends[1].err
    assert "resuming at step 2" in ends[0].out and not ends[1].out
    assert steps_of(tmp_path / "two")[-1] == 4

    # The chief dies.
    with gang(*command, tmp_path, halted=0, halt=f"2:{halt}") as workers:
        wait_for(halt, workers)
        workers[0].kill()
        check_survivor(workers[1].wait(), "worker 1 of 2")
    halt.unlink()

    # To the end.
    with gang(*command, tmp_path) as workers:
        ends = [worker.wait() for worker in workers]
    assert [end.code for end in ends] == [0, 0], ends
    assert "resuming at step 5" in ends[0].out
    assert ends[1].out.splitlines() == ["worker 1 of 2 has trained; the chief evaluates and publishes"]
    assert not ends[1].err

    # One process, never interrupted.
    alone = processes.run(TRAIN, [train_flags("one", "one_device")], cwd=tmp_path)
    assert alone.code == 0, alone.err
    expected, trained = variables(tmp_path, "one"), variables(tmp_path, "two")
    assert expected.keys() == trained.keys() and len(expected) > 20
    for name, value in expected.items():
        assert np.abs(value - trained[name]).max() <= 1e-5 * max(1.0, np.abs(value).max()), name
    print("largest difference", max(np.abs(value - trained[name]).max() for name, value in expected.items()))
    logits_of_one, report_of_one = published(tmp_path, "one")
    logits_of_two, report_of_two = published(tmp_path, "two")
    np.testing.assert_allclose(logits_of_two, logits_of_one, atol=1e-4)

    # Each test image was counted once, by one worker.
    clean_of_one, clean_of_two = (report["measurements"][0] for report in (report_of_one, report_of_two))
    assert clean_of_two["id"] == "accuracy.clean" and clean_of_two["n"] == 360
    assert clean_of_two["value"] == pytest.approx(clean_of_one["value"], abs=1 / 360 + 1e-6)


def check_survivor(end: processes.Ended, name: str) -> None:
    assert end.code == 1, end
    (line,) = end.err.splitlines()
    assert line.startswith(f"error: {name} lost contact with the others"), line
    assert "restart the same command on all workers" in line


@pytest.mark.parametrize("variables", [by_tf_config, by_slurm, by_kubernetes])
def test_the_input_is_split_without_gaps_or_repetitions(tmp_path, variables):
    with gang("distributed.multi_worker_run:main", [str(tmp_path)], tmp_path, variables=variables) as workers:
        ends = [worker.wait() for worker in workers]
    assert [end.code for end in ends] == [0, 0], ends
    first, second = (json.loads((tmp_path / f"{index}.json").read_text()) for index in range(2))
    global_batches = [
        batch.index.numpy().tolist() for batch in multi_worker_run.batches(0).take(multi_worker_run.STEPS)
    ]
    assert len(first["index"]) == len(second["index"]) == multi_worker_run.STEPS + 2
    # A worker's rows are a block of the global batch, in the order of the workers: draws go by global row.
    for expected, mine, theirs in zip(
        [*global_batches, *global_batches[-2:]], first["index"], second["index"], strict=True
    ):
        assert [*sum(mine, []), *sum(theirs, [])] == expected
        assert len(sum(mine, [])) == multi_worker_run.BATCH // 2
    # What one worker knows, both know.
    assert first["any"] == second["any"] == [True, True, False, True]
    assert "worker 0 of 2 is at step 7, others are not" in first["refused"]
    assert "worker 1 of 2 is at step 8" in second["refused"]


# ------------------------------------------------------------------------------------------------- TF_CONFIG


@pytest.mark.parametrize("text", stored.rows(globals(), "a_wrong_configuration_is_one_line_with_an_example"))
def test_a_wrong_configuration_is_one_line_with_an_example(monkeypatch, text):
    from tfrobust.errors import InputError
    from tfrobust.training import cluster

    monkeypatch.delenv("TF_CONFIG", raising=False)
    if text is not None:
        monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(InputError, match='TF_CONFIG.*"cluster"') as caught:
        cluster.join()
    assert len(str(caught.value)) <= 300 and not cluster.has_joined()


def test_a_worker_on_its_own_waits_and_hears_signals(monkeypatch, capsys):
    from tfrobust.training import cluster

    def interrupt(*_):
        raise KeyboardInterrupt

    port, other_port = local_cluster.free_ports(2)
    monkeypatch.setattr(cluster, "_PATIENCE", 0.0)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(KeyboardInterrupt):
            cluster._meet(f"localhost:{port}", [f"localhost:{port}", f"127.0.0.1:{other_port}"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert capsys.readouterr().out == f"waiting for the workers at 127.0.0.1:{other_port}\n"
    with socket.create_server(("127.0.0.1", other_port)):
        cluster._meet(f"localhost:{port}", [f"127.0.0.1:{other_port}"])
        with pytest.raises(cluster.InputError, match=f"the port {other_port}, but: Address already in use"):
            cluster._meet(f"localhost:{other_port}", [])


def test_one_process_agrees_with_itself():
    import tensorflow as tf

    from tfrobust.training import cluster

    agreement = cluster.Agreement(tf.distribute.get_strategy(), cluster.Worker())
    assert agreement.any(True, False) == (True, False)
    agreement.check_step(5)
    agreement.final_barrier()
    with agreement.after_chief():
        pass
    with pytest.raises(tf.errors.UnavailableError), cluster.watched(cluster.Worker()):
        raise tf.errors.UnavailableError(None, None, "gone")
    lost = pytest.raises(cluster.WorkerLost, match="worker 1 of 3 lost contact with the others after step 4;")
    with lost, cluster.watched(cluster.Worker(1, 3), 4):
        raise tf.errors.UnavailableError(None, None, "gone")


# ------------------------------------------------------------------------------------- tools/local_cluster.py

WORKER = """
import json, os, signal, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
"""


def run_tool(script: str, restarts: int = 0, grace: float = 60.0) -> int:
    return local_cluster.run([sys.executable, "-c", WORKER + script], 2, restarts, grace)


def test_the_tool_gives_each_worker_its_place_and_marks_its_lines(capfd):
    assert run_tool("print('a', index, len(set(json.loads(os.environ['TF_CONFIG'])['cluster']['worker'])))") == 0
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] a 0 2", "[1] a 1 2"]


def test_the_tool_kills_who_is_left_and_starts_all_again(tmp_path, capfd):
    marks = f"open(r'{tmp_path}/%d-%d' % (index, os.getpid()), 'w').close()\n"
    survivor = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif index == 0: time.sleep(600)\nsys.exit(1)"
    assert run_tool(marks + survivor, restarts=1, grace=1.0) == 1
    assert len(list(tmp_path.glob("1-*"))) == 2
    assert capfd.readouterr().out.count("killing worker 0") == 2


@pytest.mark.parametrize("code", [2, 3, 75])
def test_the_tool_does_not_repeat_what_would_end_the_same_way(tmp_path, code):
    assert run_tool(f"open(r'{tmp_path}/%d' % os.getpid(), 'w').close(); sys.exit({code})", restarts=3) == code
    assert len(list(tmp_path.iterdir())) == 2


@contextlib.contextmanager
def tool_on(tmp_path, script: str):
    """The tool as a process of its own, and the ids of its two workers once each has run `script`."""
    script = f"{WORKER}{script}\nopen(r'{tmp_path}/tmp%d' % index, 'w').write(str(os.getpid()))\n"
    script += f"os.rename(r'{tmp_path}/tmp%d' % index, r'{tmp_path}/%d' % index)\ntime.sleep(600)"
    code = f"import local_cluster, sys; sys.exit(local_cluster.run([sys.executable, '-c', {script!r}], 2, 5, 60))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    tool = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    try:
        for index in range(2):
            wait_for(tmp_path / str(index))
        yield tool, [int((tmp_path / str(index)).read_text()) for index in range(2)]
    finally:
        tool.kill()
        tool.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_tool_passes_a_signal_on(tmp_path, number):
    with tool_on(tmp_path, f"signal.signal({int(number)}, lambda *_: sys.exit(75))") as (tool, _):
        os.killpg(tool.pid, number)
        assert tool.wait(PATIENCE) == 75


def test_a_second_signal_kills(tmp_path):
    marks = f"signal.signal(signal.SIGINT, lambda *_: open(r'{tmp_path}/heard%d' % index, 'w').close())"
    with tool_on(tmp_path, marks) as (tool, _):
        tool.send_signal(signal.SIGINT)
        wait_for(tmp_path / "heard0")
        tool.send_signal(signal.SIGINT)
        assert tool.wait(PATIENCE) == 128 + signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux sees to it")
def test_workers_end_with_the_tool_however_it_ends(tmp_path):
    with tool_on(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)") as (tool, workers):
        tool.kill()
        tool.wait()
        deadline = time.monotonic() + PATIENCE
        while any(map(runs, workers)):
            assert time.monotonic() < deadline, workers
            time.sleep(0.05)


def runs(pid: int) -> bool:
    """Return True if a process still runs; one that is not waited for stays as a zombie."""
    stat = pathlib.Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
