"""Encoders of clips: torchvision's logits from torchvision's weights, the dilated kernel, and any number of frames."""

import functools
import os

import numpy as np
import pytest
import recordings
import tensorflow as tf
from models import recorded

from oracles import seeded_networks
from tfrobust.errors import InputError
from tfrobust.models.resnets.r2plus1d import R3D18, R2Plus1D18, middle_width
from tfrobust.models.shared.blocks import ConvolutionUnit
from tfrobust.models.weights import checkpoints

GOLDEN = recordings.arrays("clip_encoders")
FULL_SIZE = os.environ.get("TFROBUST_FULL_SIZE")
NETWORKS = {
    "r2plus1d": functools.partial(R2Plus1D18, width=8),
    "r2plus1d_dilated": functools.partial(R2Plus1D18, width=8, dilated=True),
    "r3d": functools.partial(R3D18, "small", width=8),
    "r3d_dilated": functools.partial(R3D18, "small", width=8, dilated=True),
}


def logits(name: str, make, tensors: dict[str, np.ndarray], count: int, shape: tuple[int, ...], folder) -> tf.Tensor:
    """Logits of the network with the tensors of the recording; every variable is set, every tensor used."""
    path = folder / "weights.npz"
    np.savez(path, **tensors)
    encoder = make()
    encoder.build((None, None, None, None, 3))
    recorded.forget(encoder)
    model, loaded = checkpoints.classifier(encoder, path)
    assert loaded.naming == "torchvision" and all(key.endswith("num_batches_tracked") for key in loaded.ignored)
    assert len(loaded.used) + len(loaded.ignored) == len(tensors)
    assert f"dilated={encoder.dilated}" in str(loaded)
    path.unlink()
    return model(recorded.inputs_of(name, count, shape, "clips"))["logits"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "r3d_dilated" else [pytest.mark.rest]) for name in NETWORKS]
)
def test_a_network_answers_as_in_torchvision(name, tmp_path):
    tensors = recorded.tensors_of("clip_encoders", name)
    assert len(tensors) == (224 if name.startswith("r2") else 122)
    frames = 9 if name.endswith("dilated") else 4
    outputs = logits(name, NETWORKS[name], tensors, 2, (frames, 16, 18, 3), tmp_path)
    assert recorded.relative_error(outputs, GOLDEN[f"{name}/outputs"]) < 2e-6


@pytest.mark.skipif(not FULL_SIZE, reason="networks of full size: set TFROBUST_FULL_SIZE=1; takes a minute")
@pytest.mark.parametrize(("name", "make"), [("full_r2plus1d", R2Plus1D18), ("full_r3d", R3D18)])
def test_a_network_of_full_size_answers_as_in_torchvision(name, make, tmp_path):
    shapes = checkpoints.shapes(make()) | {"fc.weight": (400, 512), "fc.bias": (400,)}
    tensors = {key: seeded_networks.torch_tensor(name, key, shape) for key, shape in shapes.items()}
    outputs = logits(name, make, tensors, 1, (16, 112, 112, 3), tmp_path)
    error = recorded.relative_error(outputs, GOLDEN[f"{name}/outputs"])
    print(f"{name}: {error:.1e}")
    assert error < 1e-5


def test_tensors_of_the_other_network_are_refused(tmp_path):
    shapes = checkpoints.shapes(R3D18(width=2))
    path = tmp_path / "weights.npz"
    np.savez(path, **{name: np.ones(shape, np.float32) for name, shape in shapes.items()})
    with pytest.raises(InputError, match=r"\[2, 3, 3, 7, 7\], not \[2, 3, 3, 3, 3\] \(stem='kinetics'\)"):
        checkpoints.load(R3D18("small", width=2), path)
    with pytest.raises(InputError, match="is no R2Plus1D18"):
        checkpoints.load(R2Plus1D18(width=2), path)


def test_middle_widths_are_those_of_the_paper():
    """Each pair has about as many parameters as a 3x3x3 convolution; the numbers are torchvision's."""
    middle_widths = [middle_width(*widths) for widths in ((64, 64), (64, 128), (128, 128), (256, 256), (512, 512))]
    assert middle_widths == [144, 230, 288, 576, 1152]


@pytest.mark.parametrize("frames", [3, 4, 5, 8])
def test_a_kernel_dilated_in_time_skips_frames(frames):
    """Against sums written out, for even and odd numbers of frames, next to a stride in space."""
    unit = ConvolutionUnit(2, size=(3, 1, 1), stride=(1, 2, 2), dilation=2, normalize=False, activate=False)
    clips = np.random.default_rng(frames).normal(size=(2, frames, 4, 4, 3)).astype(np.float32)
    convolved = unit(clips)
    assert convolved.shape == unit.compute_output_shape(clips.shape) == (2, frames, 2, 2, 2)
    kernel, bias = unit.chain[0].kernel.numpy()[:, 0, 0], unit.chain[0].bias.numpy()
    padded = np.pad(clips, [(0, 0), (2, 2), (0, 0), (0, 0), (0, 0)])[:, :, ::2, ::2]
    expected = sum(padded[:, 2 * tap : 2 * tap + frames] @ kernel[tap] for tap in range(3)) + bias
    np.testing.assert_allclose(convolved, expected, rtol=0, atol=1e-5)


def test_clips_of_any_length_but_no_other_size():
    encoder = R3D18("small", width=1, resize_to=8)
    encoder.build((None, 4, 6, 5, 1))
    lengths = [encoder(np.ones((1, frames, 6, 5, 1), np.float32)).shape for frames in (1, 4, 6)]
    assert lengths == [(1, 8)] * 3
    assert encoder.last_stage_shape((None, 5, 6, 5, 1)) == (None, 1, 1, 1, 8)
    with pytest.raises(ValueError, match="incompatible"):
        encoder(np.ones((1, 4, 6, 6, 1), np.float32))
