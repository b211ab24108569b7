"""A command in a process of its own ends as that ends; a crash is one line."""

import pathlib
import signal
import subprocess
import sys

import pytest
import stored

import tfrobust

_PROGRAM = stored.text(globals(), "program")
# What the command does -> (exit code, its line).
ENDS = stored.table(globals(), "ends")


def _started(kind: str, program: str = _PROGRAM) -> subprocess.Popen:
    root = str(pathlib.Path(tfrobust.__file__).parents[1])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-P", "-c", program, root, kind], **pipes)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a copy with its parent")


@pytest.mark.parametrize("kind", ENDS)
def test_it_ends_as_the_copy(kind):
    code, line = ENDS[kind]
    process = _started(kind)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("copied\n", code)
    assert err.startswith(line) and len(err.splitlines()) == bool(line)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_to_stop_is_passed_on_once(number):
    process = _started("time.sleep(60)")
    assert process.stdout.readline() == "copied\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 75 and err.startswith("stopped on request") and len(err.splitlines()) == 1


def test_the_copy_ends_with_the_command():
    process = _started("print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout.readline() == "copied\n"
    child = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=30)
    # The copy holds the other end of the pipe.
    assert process.stdout.read() == "" and child != process.pid


def test_a_process_with_threads_is_not_copied():
    thread = "import threading\nthreading.Thread(target=time.sleep, args=(1,)).start()\nfirst = "
    out, _ = _started("pass", _PROGRAM.replace("first = ", thread)).communicate(timeout=60)
    assert out == "alone\n"
