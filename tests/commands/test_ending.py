"""Flags, exit codes, and what becomes of errors."""

import argparse
import errno  # noqa: F401
import io
import os
import pathlib
import shutil  # noqa: F401
import signal
import subprocess
import sys
import textwrap

import pytest
import stored

from tfrobust.commands import failures, query, train
from tfrobust.commands.configuration import binding, registry
from tfrobust.commands.flags import Parser, count
from tfrobust.commands.run import quiet_stderr
from tfrobust.errors import Failure, InputError, RefusedByGate, StopRequested  # noqa: F401
from tfrobust.serving.export.publish import VersionExists

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(raised=None, arguments=()):
    """Runs a command that raises, or that does nothing."""

    def command(flags):
        if callable(raised):
            raised()
        elif raised is not None:
            raise raised

    parser = Parser("test", "A command for tests.")
    parser.add_argument("--workdir")
    return failures.main(parser, command, list(arguments))


def lines(capfd) -> list[str]:
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize("raised, code, start", stored.rows(globals(), "exit_codes"))
def test_exit_codes(capfd, raised, code, start):
    assert run(raised) == code
    messages = lines(capfd)
    if start is None:
        assert messages == []
    else:
        assert messages[0].startswith(start) and (len(messages) == 1) == (start != "Traceback")


def test_a_long_or_broken_message_is_one_line_of_300(capfd):
    assert run(InputError("word\n  " * 500)) == 2
    messages = lines(capfd)
    assert len(messages) == 1 and len(messages[0]) <= 300


def test_a_letter_that_the_output_cannot_encode_is_its_number(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", output)
    assert run(lambda: print("c\u00e4t 60 \u00b1 5")) == 0
    assert output.buffer.getvalue() == b"c\\xe4t 60 \\xb1 5\n"


def test_help_and_usage(capfd):
    assert run(arguments=["--help"]) == 0
    assert "A command for tests." in capfd.readouterr().out
    assert run(arguments=["--wokdir=x"]) == 2
    assert lines(capfd) == ["error: there is no flag '--wokdir'; nearest: --workdir"]
    assert run(arguments=["--work=x"]) == 2  # no abbreviations
    assert run(arguments=["stray"]) == 2
    assert run(arguments=["--workdir"]) == 2
    assert all(line.startswith("error: ") for line in lines(capfd))


def test_version_is_one_line_for_a_bug_report(capsys):
    assert run(arguments=["--version"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("tfrobust ") and line.count("\n") == 1
    for command in (train, query):
        assert command.main(["--version"]) == 0 and capsys.readouterr().out == line
    parser = train.parser()
    assert parser.parse_args(["--gin_file=a.gin", "--version=3"]).version == 3
    assert parser.parse_args(["--gin_file=a.gin"]).version is None


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "x", "", "١", "9" * 50 + "x"])
def test_count_refuses(text):
    with pytest.raises(argparse.ArgumentTypeError):
        count(text)


@pytest.mark.parametrize("number, first_line", stored.rows(globals(), "errors_of_the_file_system_keep_their_number"))
def test_errors_of_the_file_system_keep_their_number_under_gin(capfd, number, first_line):
    import gin

    def fails():
        raise OSError(number, os.strerror(number), "exported")

    with gin.unlock_config():
        inner = gin.register(f"fails_{number}", module="tests")(fails)
        gin.register(f"calls_{number}", module="tests")(lambda: gin.get_configurable(inner)())
    # Two layers of gin, each of which raises a copy without errno.
    assert run(lambda: gin.get_configurable(f"tests.calls_{number}")()) == (2 if first_line else 1)
    assert lines(capfd)[:1] == [first_line or "Traceback (most recent call last):"]


def test_what_a_constructor_refuses_is_a_configuration_error(capfd):
    """A class of Keras or of a user knows no InputError; what a function raises later is a bug."""
    import gin

    class Part:
        def __init__(self, rate=1):
            if rate != 1:
                raise (TypeError if rate is None else ValueError)(f"rate is {rate}")

    def late(part):
        raise ValueError("depths")

    objects = {"tests.PartOfTestEnding": Part, "tests.late_of_test_ending": late}
    for name in objects:
        binding.register(name, registry.Registry(objects))
    part = gin.get_configurable("tests.PartOfTestEnding")
    assert type(part()) is Part and issubclass(part, Part)
    for rate in (3, None):
        assert run(lambda rate=rate: part(rate)) == 2
        assert lines(capfd) == [f"error: rate is {rate}"]
    assert run(lambda: gin.get_configurable("tests.late_of_test_ending")(part=1)) == 1


def test_an_error_inside_a_tf_function_keeps_its_class(capfd):
    """Under autograph TensorFlow raises anew, of the same class only where that is made like a plain exception."""
    tf = pytest.importorskip("tensorflow")

    def traced(kind):
        def ours(x):
            raise kind("steps is 0")

        return lambda: tf.function(ours, autograph=True)(tf.zeros([]))

    for kind in (InputError, VersionExists):
        assert run(traced(kind)) == 2
        assert lines(capfd) == ["error: steps is 0"]
    assert run(traced(ValueError)) == 1


def test_keras_wrapping_is_taken_off():
    wrapped = ValueError(
        "Exception encountered when calling CNN.call().\n\n\x1b[1mimages are too small\x1b[0m\n\nArguments received by"
    )
    assert failures.one_line(wrapped) == "images are too small"


def test_sigterm_ends_with_75(capfd):
    assert run(lambda: os.kill(os.getpid(), signal.SIGTERM)) == 75


@pytest.mark.parametrize("body, wires", stored.rows(globals(), "a_reader_that_goes_away_is_no_error"))
def test_a_reader_that_goes_away_is_no_error(body, wires):
    program = f"""
        import sys
        from tfrobust.commands import failures, flags

        def run(_):
            {body}

        sys.exit(failures.main(flags.Parser("test", "A command for tests."), run, []))
    """
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": writing, "stderr": writing if "stderr" in wires else subprocess.PIPE}
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, check=False, **streams)
    os.close(writing)
    assert ended.returncode == failures.UNREAD == 128 + signal.SIGPIPE and not ended.stderr


def test_a_broken_pipe_of_our_own_is_an_error(capfd):
    assert run(BrokenPipeError(32, "Broken pipe")) == 1
    assert lines(capfd)[0].startswith("Traceback")


def test_quiet_stderr_speaks_if_the_block_fails(capfd):
    with quiet_stderr():
        os.write(2, b"chatter\n")
    assert capfd.readouterr().err == ""
    with pytest.raises(RuntimeError), quiet_stderr():
        os.write(2, b"why\n")
        raise RuntimeError
    assert capfd.readouterr().err == "why\n"


@pytest.mark.parametrize("command", ["train", "evaluate", "export", "compare"])
def test_help_imports_nothing_beside_gin_and_the_standard_library(command):
    code = (
        f"import sys; before = set(sys.modules); from tfrobust import {command}; c = {command}.main(['--help']); "
        "found = {name.split('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names; "
        "print(sorted(found)); sys.exit(c)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.splitlines()[-1] == "['gin', 'tfrobust']"


@pytest.mark.parametrize("arguments, message", stored.rows(globals(), "knobs_and_files_given_as_flags_are_named"))
def test_knobs_and_files_given_as_flags_are_named(arguments, message):
    with pytest.raises(InputError) as caught:
        train.parser().parse_args(arguments)
    assert message in str(caught.value)


@pytest.mark.parametrize("error, line", stored.rows(globals(), "a_full_disk_is_named_with_its_file_whoever_raises"))
def test_a_full_disk_is_named_with_its_file_whoever_raises_it(capfd, error, line):
    def full():
        raise error

    assert run(full) == 1
    (printed_line,) = capfd.readouterr().err.splitlines()
    assert line in printed_line and "{{" not in printed_line and "[(" not in printed_line
