import shutil
import subprocess

import numpy as np
import pytest
import stored
import tensorflow as tf

from tfrobust.security import memory, rehearsal
from tfrobust.serving.export import probe, publish, verify

CHECKS = ["checksums", "signatures", "golden request", "warm-up", "report", "clean process"]


@pytest.fixture
def copy(attached, tmp_path):
    return shutil.copytree(attached, tmp_path / "7")


def test_a_clean_process_gets_the_recorded_answers(attached):
    result = verify.verify(attached)
    assert result.problems == ()
    assert result.passed and list(result.checks) == CHECKS


@pytest.mark.parametrize("name, tamper, problem", stored.rows(globals(), "tampering_is_seen_before_anything_is_loaded"))
def test_tampering_is_seen_before_anything_is_loaded(copy, name, tamper, problem):
    path = copy / name
    if tamper is None:
        path.unlink()
    else:
        path.write_bytes(tamper(path.read_bytes() if path.exists() else b""))
    problems = probe.check(copy)
    assert list(problems) == ["checksums"] and any(problem in text for text in problems["checksums"])


def test_tampering_with_new_checksums_is_seen_by_the_answers(copy):
    report = copy / probe.REPORT_FILE
    report.write_text(report.read_text().replace("holds", "never"))
    warmup = copy / probe.WARMUP_FILE
    length = int.from_bytes(warmup.read_bytes()[:8], "little")
    warmup.write_bytes(warmup.read_bytes()[: 16 + length])
    golden = probe.read_golden(copy)
    golden["embedding"][0, 0] += 1e-6
    np.savez(copy / probe.GOLDEN_FILE, **golden)
    publish.write_sums(copy)
    problems = probe.check(copy)
    assert "embedding" in problems["golden request"][0]
    assert any("No warm-up record calls" in text for text in problems["warm-up"])
    assert problems["report"] and not problems["checksums"] and not problems["signatures"]


def test_what_the_clean_process_dies_of_is_reported(copy):
    variables = copy / "variables" / "variables.data-00000-of-00001"
    variables.write_bytes(bytes(byte ^ 255 for byte in variables.read_bytes()))
    publish.write_sums(copy)
    result = verify.verify(copy)
    assert not result.passed and list(result.checks) == ["loading"]
    assert len(result.problems[0]) <= 300
    assert "ended after" in verify.verify(copy, timeout=0.05).problems[0]
    (copy / "saved_model.pb").write_bytes(b"garbage")
    publish.write_sums(copy)
    assert list(verify.verify(copy).checks) == ["scan"]


def test_noisy_copies_and_drivers_of_a_gpu_get_the_memory_that_they_take(attached, monkeypatch):
    """A hundred copies of an image of 96x96 took more than all other checks, and no such model was published."""
    free, limits = 2**40, []

    def ended(command, **options):
        limits.append(command[-1])
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(verify.subprocess, "run", ended)
    monkeypatch.setattr(memory, "available", lambda: free)
    for is_smoothed, devices in ((False, []), (True, []), (True, ["GPU"])):
        monkeypatch.setattr(verify, "_is_smoothed", lambda directory, answer=is_smoothed: answer)
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind, answer=devices: answer)
        verify.verify(attached, timeout=1.0)
    assert limits == [str(2**30 + rehearsal.memory_limit(attached)), str(2**30 + int(0.9 * free)), ""]
