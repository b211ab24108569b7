"""The lines of a training: within 80 columns, all logs on request, and an estimate without the compilation."""

import pytest
import stored

from tfrobust.training import observability, progress

LOGS = {"loss": 7.894, "accuracy": 0.9841, "val_clean_accuracy": 0.99, "val_robust_accuracy": 0.59}


@pytest.mark.parametrize("logs, line", stored.rows(globals(), "the_line_of_an_epoch"))
def test_the_line_of_an_epoch(logs, line):
    assert progress.epoch_line(12, 40, logs, 0.6) == line
    assert len(progress.epoch_line(100, 1000, logs, 3599)) <= 80


def ran(monkeypatch, verbose: int, *seconds: float, steps=8, steps_after=0.0) -> None:
    """One epoch whose steps take these seconds, then 0.1 each."""
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    lines = progress.EpochLines(2, steps, verbose, steps_after)
    lines.on_epoch_begin(0)
    for step in range(steps):
        lines.on_train_batch_begin(step)
        clock[0] += [*seconds, *[0.1] * steps][step]
        lines.on_train_batch_end(step, {"loss": 1.0})
    lines.on_epoch_end(0, {f"a_long_name_of_a_term_{number}": 0.25 for number in range(5)} | LOGS)
    lines.close()


def test_the_estimate_does_not_count_the_first_step(monkeypatch, capsys):
    ran(monkeypatch, 1, 50.0)
    first, epoch = capsys.readouterr().out.splitlines()
    assert first == "estimate    about 1 s for 10 more steps"
    assert epoch == "epoch 1/2  loss 7.89  accuracy 98.4  val 99.0 / 59.0 robust  51 s"
    ran(monkeypatch, 1, steps_after=600.0)
    assert capsys.readouterr().out.startswith(
        "estimate    about 1 s for 10 more steps, then at most about 1 min 0 s of attacks"
    )
    ran(monkeypatch, 1, 50.0, 4.0)  # a long step is enough
    assert capsys.readouterr().out.startswith("estimate    about 56 s for 14 more steps\n")


def test_all_logs_or_none(monkeypatch, capsys):
    ran(monkeypatch, 2)
    *_, epoch, first, second, third, _ = capsys.readouterr().out.splitlines()
    assert epoch.startswith("epoch 1/2  loss 7.89") and max(map(len, (first, second, third))) <= 80
    assert first.startswith("    a_long_name_of_a_term_0 0.25  a_long_name_of_a_term_1 0.25")
    assert "accuracy 0.984" in third
    ran(monkeypatch, 0)
    assert capsys.readouterr().out == ""


def test_the_speed_is_that_of_the_steps_without_the_end_of_the_epoch(monkeypatch, tmp_path):
    clock, written = [100.0], []
    monkeypatch.setattr(observability.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        observability.tf.summary, "scalar", lambda name, value, step: written.append((name, value, step))
    )
    speed = observability.Throughput(str(tmp_path), batch_size=20)
    for epoch in range(2):
        speed.on_epoch_begin(epoch)
        for step in range(4):
            clock[0] += 0.5
            speed.on_train_batch_end(step)
        clock[0] += 100.0  # validation under attack
        speed.on_epoch_end(epoch)
    speed.on_train_end()
    assert written == [("cost/examples_per_second", 40.0, epoch) for epoch in range(2)]
