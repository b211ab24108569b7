"""The toy problem: its points are what it says, its schemes the six of the paper, and it draws them."""

import toy_problem as tool


def test_it_prints_and_draws(monkeypatch, tmp_path, capsys):
    every = tool.schemes()
    names = ["Baseline", "Noise injection", "Manifold Mixup", "NFM", "Manifold Mixup + JSD", "NoisyMix"]
    assert list(every) == names
    # The methods have tests of their own: here the first and the last, to save time.
    few = {name: every["NoisyMix" if name == "NoisyMix" else "Baseline"] for name in names}
    monkeypatch.setattr(tool, "schemes", lambda: few)
    assert tool.main([f"--output={tmp_path / 'toy.png'}", "--epochs=10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in lines[1:7]:
        assert float(line.split()[-2]) > 70.0, line  # of 100,000 fresh points; guessing has 50
    assert (tmp_path / "toy.png").read_bytes()[:4] == b"\x89PNG" and lines[-1].endswith("toy.png")
