"""A command in a process of its own ends as that ends; a crash is one line."""

import pathlib
import signal
import subprocess
import sys

import pytest

import tfrobust

_PROGRAM = """
import argparse, os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started the tests in the background
sys.path.append(sys.argv[1])
from tfrobust.commands import failures, supervised
from tfrobust.errors import InputError
first = os.getpid()
def run(flags):
    supervised.continue_in_child("a model")
    print("copied" if os.getppid() == first else "alone", flush=True)
    exec(sys.argv[2])
parser = argparse.ArgumentParser()
sys.exit(failures.main(parser, run, []))
"""
# What the command does -> (exit code, its line).
ENDS = {
    "pass": (0, ""),
    "raise InputError('a wrong input')": (2, "error: a wrong input"),
    "raise SystemExit(3)": (3, ""),
    "os.kill(os.getpid(), signal.SIGSEGV)": (2, "error: a model crashes TensorFlow when it is called (SIGSEGV). "),
    "os.abort()": (2, "error: a model crashes TensorFlow when it is called (SIGABRT). "),
    "os.kill(os.getpid(), signal.SIGKILL)": (-signal.SIGKILL, ""),
}


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
