"""The command on the weights alone of a network from PyTorch, and the data set they were recorded on."""

import json
import pathlib

import numpy as np

from oracles import seeded_networks
from tfrobust.commands import evaluate

ROOT = pathlib.Path(__file__).resolve().parents[2]
NETWORK = "trades_wide_resnet"
SIZES = ["--gin_param=WideResNet.depth=10", "--gin_param=WideResNet.width=2"]


def _evaluate(model, data, output, *more):
    flags = [f"--model={model}", f"--data={data}", f"--output={output}", "--gin_file=gin/eval/quick.gin"]
    flags += ["--gin_param=EVALUATORS=[@CleanAccuracy()]", "--gin_param=EPSILON=0.1"]
    return evaluate.main([*flags, *more])


def test_weights_are_judged_with_their_network(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with np.load(ROOT / "tests" / "golden" / "checkpoints.npz") as golden:
        lines, outputs = golden[f"{NETWORK}/tensors"], golden[f"{NETWORK}/outputs"]
    parts = [line.split(" ") for line in lines]
    shapes = {name: tuple(int(size) for size in shape.split("x") if size) for name, shape in parts}
    tensors = {name: seeded_networks.torch_tensor(NETWORK, name, shape) for name, shape in shapes.items()}
    np.savez(tmp_path / "weights.npz", **tensors)
    images = (seeded_networks.uniform(f"{NETWORK}/images", (2, 32, 32, 3)) + 1) / 2
    # The recorded network is right on the first image and wrong on the second.
    predicted = outputs.argmax(1)
    np.savez(tmp_path / "data.npz", images=images, labels=[predicted[0], (predicted[1] + 1) % 10])
    paths = (tmp_path / "weights.npz", tmp_path / "data.npz", tmp_path / "out")
    network = ["--gin_file=gin/models/wide_resnet28x10.gin", *SIZES]
    assert _evaluate(*paths, *network) == 0
    output = capsys.readouterr().out
    assert (
        "weights.npz: 40 tensors with TRADES's names, prefix 'module.'; ignored: module.sub_block1.layer.0.bn1.w"
        in output
    )
    report = json.loads((tmp_path / "out" / "robustness_report.json").read_text())
    values = {measurement["id"]: measurement["value"] for measurement in report["measurements"]}
    assert values["accuracy.clean"] == 0.5 and report["model"]["name"] == "weights"
    assert report["model"]["parameters"] == sum(
        value.size for name, value in tensors.items() if "sub_block1" not in name and "num_batches" not in name
    )
    # What is missing is one line: the network, the right depth, a file that is no pickle.
    (tmp_path / "weights.pth").write_bytes(b"\x80\x04.")
    other = (tmp_path / "weights.pth", *paths[1:])
    for arguments, more, message in (
        (paths, [], "holds only weights: name the network, such as by --gin_file=gin/models/resnet18.gin"),
        (paths, ["--gin_file=gin/models/gowal_small.gin"], "CNN is not supported: "),
        (paths, network[:1], "weights.npz is no WideResNet (depth=28, width=10): "),
        (other, network, "weights.pth is a pickle, which can run code; convert it"),
    ):
        assert _evaluate(*arguments, *more) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1 and len(error) <= 301
