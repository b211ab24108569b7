"""The bar on a terminal, and the plain lines where there is none."""

import io
import sys
import time
import types

import pytest

from tfrobust.common import console


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def at_once(monkeypatch):
    for name in ("PATIENCE", "PLAIN_INTERVAL"):
        monkeypatch.setattr(console, name, 0.0)


def test_a_bar_on_a_terminal_leaves_with_its_task(at_once, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    with console.Live() as live:
        live.show("first [1/2]", 1, 4)
        live.show("first [2/2]", 2, 4)
        print("a line above the bar")
        live.close()
        live.show("second", 3, 4)
    shown = terminal.getvalue()
    assert all(text in shown for text in ("first [1/2]", "25%", "first [2/2]", "50%", "second", "75%"))
    assert "a line above the bar\n" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 2, "the cursor is hidden and shown again"
    assert live.seconds == 0.0


@pytest.mark.parametrize(("encoding", "term"), [("iso-8859-1", "xterm"), ("utf-8", "dumb")])
def test_plain_lines_on_a_terminal_that_cannot_show_a_bar(at_once, monkeypatch, encoding, term):
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(Terminal, "encoding", encoding)
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    with console.Live() as live:
        live.show("task", 1, 4)
    assert terminal.getvalue().startswith("task  25 % after ") and "\x1b" not in terminal.getvalue()


def test_plain_lines_elsewhere(at_once, capsys):
    live = console.Live()
    live.show("task", 1, 4)
    live.show("task", 4, 4)  # the caller prints a line at the end
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("task  25 % after ") and line.endswith(" s")


def test_without_standard_output_nothing_fails(at_once, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    with console.Live() as live:
        live.show("task", 1, 4)
        assert live.seconds > 0.0


def test_short_tasks_show_nothing(capsys):
    live = console.Live()
    live.show("task", 1, 4)
    live.close()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("seconds, text", [(0.6, "0.6 s"), (41.4, "41 s"), (125, "2 min 5 s"), (12000, "3 h 20 min")])
def test_durations(seconds, text):
    assert console.duration(seconds) == text


def test_a_bar_in_a_notebook_is_redrawn_in_place(at_once, monkeypatch, capsys):
    drawn = []
    handle = types.SimpleNamespace(update=drawn.append)
    display = types.SimpleNamespace(HTML=str, display=lambda page, display_id: drawn.append(page) or handle)
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=display))
    with console.Live() as live:
        live.show("task <b>", 1, 4)
        live.show("not so soon", 2, 4)  # at most four times a second
    assert drawn[0] == drawn[-1] == "" and capsys.readouterr().out == ""
    assert drawn[1:-1] == ['<progress value="1" max="4"></progress> <span>task &lt;b&gt;  25 %</span>']
    monkeypatch.delattr(shell, "kernel")
    assert not console.in_notebook()


def test_an_interval_gives_lines_on_a_terminal(at_once, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", terminal := Terminal())
    with console.Live(interval=0.0) as live:
        live.show("task", 1, 4)
    with console.Live(interval=60.0) as live:
        live.show("later", 1, 4)
    assert terminal.getvalue().startswith("task  25 % after ") and "later" not in terminal.getvalue()


def test_a_silent_task_is_named_from_time_to_time(capsys):
    with console.Heartbeat("map", interval=0.05) as heartbeat:
        time.sleep(0.2)
        heartbeat.begin("checks")
        time.sleep(0.15)
        for _ in range(10):
            time.sleep(0.02)
            heartbeat.reported()
    lines = capsys.readouterr().out.splitlines()
    names = [line.partition(": ")[0] for line in lines]
    assert 2 <= names.count("map") <= 4 and 1 <= names.count("checks") <= 3 and names == sorted(names, reverse=True)
    assert all(line.endswith(" s so far") for line in lines)
    with console.Heartbeat("map", interval=None):
        pass
