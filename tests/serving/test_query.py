"""`python -m tfrobust.query` against the development server."""

import json
import socket
import subprocess
import sys

import numpy as np
import pytest
import stored
from serving.helpers import encoded

from tfrobust.commands import query
from tfrobust.serving.export import golden


@pytest.fixture
def files(tmp_path):
    """Two images as PNG, and the same as one array."""
    pixels = golden.golden_pixels((8, 8, 1), 2)
    paths = [tmp_path / "0.png", tmp_path / "1.png"]
    for path, image in zip(paths, pixels, strict=True):
        path.write_bytes(encoded(image))
    np.save(tmp_path / "both.npy", golden.golden_images((8, 8, 1), 2))
    return [*map(str, paths), str(tmp_path / "both.npy")]


def answers(capsys, *flags):
    assert query.main(list(flags)) == 0
    return capsys.readouterr().out


def test_predictions_have_the_classes_names_and_are_aligned(url, files, capsys, exported):
    asked = (f"--url={url}", "--model=small")
    lines = answers(capsys, *asked, f"--image={files[0]}", "--image", files[1]).splitlines()
    assert len(lines) == 3 and lines[0].split() == ["input", "predicted", "probability", "then"]
    ends = [[end for end in range(len(line)) if line[end] == "%"] for line in lines[1:]]
    assert ends[0] == ends[1] and len(ends[0]) == 3
    document = json.loads(answers(capsys, *asked, f"--image={files[2]}", "--format=json"))
    expected = golden.read(exported / "1")["probabilities"]
    for number, entry in enumerate(document["predictions"]):
        assert entry["input"] == f"{files[2]}[{number}]" and list(entry["probabilities"]) == ["cat", "dog", "owl"]
        np.testing.assert_allclose(list(entry["probabilities"].values()), expected[number], rtol=1e-6)
        best = ["cat", "dog", "owl"][expected[number].argmax()]
        assert entry["predicted"] == best and entry["probability"] == max(entry["probabilities"].values())
        assert lines[1 + number].split()[:4] == [files[number], best, f"{100 * entry['probability']:.2f}", "%"]


def test_metadata(url, capsys):
    asked = (f"--url={url}", "--model=small", "--metadata")
    lines = answers(capsys, *asked).splitlines()
    assert lines[0] == "small, version 1 is served (versions: 1 AVAILABLE)"
    assert "serving_default takes images float32 [b, 8, 8, 1]" in [" ".join(line.split()) for line in lines]
    endpoint = json.loads(answers(capsys, *asked, "--format=json"))["endpoints"]["robustness_report"]
    assert endpoint == {"inputs": {"request": "string [b]"}, "outputs": {"report": "string [b]"}}


def test_the_served_models_own_report(url, capsys, report):
    asked = (f"--url={url}", "--model=small", "--label=stable", "--report")
    assert answers(capsys, *asked, "--format=json") == report.to_json()
    table = answers(capsys, *asked)
    assert "evaluated on noise" in table and "75.0 %" in table and table.endswith("Holds against nobody.\n")


@pytest.mark.parametrize("flags, message", stored.rows(globals(), "a_mistake_is_one_line_and_2"))
def test_a_mistake_is_one_line_and_2(server, flags, message, capsys):
    assert query.main([flag.format(url=server.rest_url) for flag in flags]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("error: ") and message in error and error.count("\n") == 1


def test_an_unreachable_server_is_one_line_and_1(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert query.main([f"--url={url}", "--model=small", "--report", "--timeout=5"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {url} cannot be reached") and error.count("\n") == 1


def test_over_rest_the_command_needs_no_tensorflow(server):
    code = (
        "import sys; from tfrobust.commands import query; code = query.main(sys.argv[1:])\n"
        "assert not {'tensorflow', 'keras', 'grpc', 'matplotlib'} & set(sys.modules), sorted(sys.modules)\n"
        "sys.exit(code)"
    )
    flags = [f"--url={server.rest_url}", "--model=small", "--report"]
    done = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "accuracy" in done.stdout, done.stderr
