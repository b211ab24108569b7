"""Vision transformers and SwAV's ResNet-50 from PyTorch: recorded outputs, positions, and what no shape shows."""

import functools
import os
import pathlib
import re

import numpy as np
import pytest
import recordings
import stored
import tensorflow as tf
from models import recorded

from oracles import seeded_networks
from tfrobust.errors import InputError
from tfrobust.evaluation.engine.loading import from_keras
from tfrobust.keras.attacks import PGD, ThreatModel, run_attack
from tfrobust.keras.models import ResNet50, ViT
from tfrobust.models.shared.positions import patch_sinusoids, resizing_matrix
from tfrobust.models.weights import checkpoints

GOLDEN = recordings.arrays("pretrained")
FULL_SIZE = os.environ.get("TFROBUST_FULL_SIZE")
SMALL = functools.partial(ViT, 4, width=16, depth=5, grid=4)
MOCO = functools.partial(SMALL, heads=4, positions="sinusoidal")
SWAV = functools.partial(ResNet50, stem="imagenet", width=4, symmetric=True, kernel_regularization=0.0)

# Encoder, family, prefix of the names, parts of the names that are ignored.
NETWORKS = stored.cases(__file__, "transformers", globals(), "tables.toml")
WITHOUT_CLASSIFIER = ("dino_teacher", "moco_v3")
FULL = {
    "full_vit_small16": (lambda: ViT(heads=6, grid=14), "timm", "head"),
    "full_vit_small8": (lambda: ViT(8, heads=6, grid=28), "timm", "head"),
    "full_vit_base16": (lambda: ViT(heads=12, width=768, grid=14), "torchvision", "heads.head"),
}


def outputs_of(name: str) -> dict[tuple[int, int], np.ndarray]:
    """The recorded outputs by the size of the images."""
    start = f"{name}/outputs/"
    outputs = {key.removeprefix(start): value for key, value in GOLDEN.items() if key.startswith(start)}
    return {tuple(map(int, size.split("x"))): value for size, value in outputs.items()}


def tensors_of(name: str) -> dict[str, np.ndarray]:
    """The tensors of a recorded network, by the names that it has in PyTorch."""
    tensors = recorded.tensors_of("pretrained", name.removesuffix("_old"))
    if name.startswith("moco_v3"):
        tensors |= {key: GOLDEN["fixed_positions/4"][None] for key in tensors if key.endswith("pos_embed")}
    if name.endswith("_old"):  # the names of the published file, which torchvision changes when it loads it
        new = {"mlp.0": "mlp.linear_1", "mlp.3": "mlp.linear_2"}
        tensors = {re.sub(r"mlp\.[03]", lambda old: new[old[0]], key): value for key, value in tensors.items()}
    return tensors


def written(folder, tensors: dict) -> pathlib.Path:
    np.savez(folder / "weights.npz", **tensors)
    return folder / "weights.npz"


# ------------------------------------------------------------------------------------------------------ parity


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_answers_as_in_pytorch(name, tmp_path):
    make, family, prefix, ignored = NETWORKS[name]
    tensors, encoder = tensors_of(name), make()
    path = written(tmp_path, tensors)
    encoder.build((None, None, None, 3))
    recorded.forget(encoder)
    if name in WITHOUT_CLASSIFIER:
        model, loaded = encoder, checkpoints.load(encoder, path)
    else:
        classifier, loaded = checkpoints.classifier(encoder, path)
        model = lambda images: classifier(images)["logits"]  # noqa: E731
    network = name.removesuffix("_old")
    for size, expected in outputs_of(network).items():
        assert recorded.relative_error(model(recorded.inputs_of(network, 2, (*size, 3))), expected) < 5e-6, size
    assert (loaded.naming, loaded.prefix) == (family, prefix)
    assert sorted([*loaded.used, *loaded.ignored]) == sorted(tensors)
    assert all(set(part.split(".")) & set(ignored) for part in loaded.ignored)
    assert all(any(part in ignored_name.split(".") for ignored_name in loaded.ignored) for part in ignored)
    assert ("heads as in ViT.heads, which no file shows" in str(loaded)) == (name != "swav")


@pytest.mark.parametrize(("grid", "rows", "columns"), [(14, 6, 6), (14, 24, 20), (4, 6, 5)])
def test_positions_are_resized_as_in_pytorch(grid, rows, columns):
    table = seeded_networks.torch_tensor(f"table{grid}", "pos_embed", (1, 1 + grid**2, 2))[0]
    down, across = resizing_matrix(grid, rows), resizing_matrix(grid, columns)
    resized = np.einsum("ir,jc,rcd->ijd", down, across, table[1:].reshape(grid, grid, 2).astype(np.float64))
    expected = GOLDEN[f"resized/{grid}/{rows}x{columns}"]
    np.testing.assert_allclose(np.concatenate([table[:1], resized.reshape(-1, 2)]), expected, rtol=0, atol=1e-12)
    encoder = ViT(1, width=2, depth=1, heads=1, grid=grid)
    encoder.build((None, None, None, 3))
    for variable in encoder.variables:
        variable.assign(tf.zeros_like(variable))
    encoder.tokens.table.assign(table[None])
    tokens = encoder.tokens(tf.zeros([1, rows, columns, 3]))[0]
    np.testing.assert_allclose(tokens, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("grid", "width"), [(4, 16), (14, 384)])
def test_fixed_positions_are_those_of_pytorch(grid, width):
    expected = GOLDEN[f"fixed_positions/{grid}"]
    assert np.all(expected[0] == 0)
    np.testing.assert_allclose(patch_sinusoids(grid, grid, width), expected[1:], rtol=0, atol=2e-6)


@pytest.mark.skipif(not FULL_SIZE, reason="networks of full size: set TFROBUST_FULL_SIZE=1; takes a minute and 2 GB")
@pytest.mark.parametrize("name", FULL)
def test_a_network_of_full_size_answers_as_in_pytorch(name, tmp_path):
    make, family, head = FULL[name]
    encoder = make()
    shapes = checkpoints.shapes(encoder, family)
    shapes |= {f"{head}.weight": (1000, encoder.dim), f"{head}.bias": (1000,)}
    path = written(tmp_path, {key: seeded_networks.torch_tensor(name, key, shape) for key, shape in shapes.items()})
    model, _ = checkpoints.classifier(encoder, path)
    path.unlink()
    for size, expected in outputs_of(name).items():
        error = recorded.relative_error(model(recorded.inputs_of(name, 2, (*size, 3)))["logits"], expected)
        print(f"{name} {size}: {error:.1e}")
        assert error < 1e-5


# ------------------------------------------------------------------------------------------- what no shape shows


@pytest.mark.parametrize("name, make, message", stored.cases(__file__, "transformers_of_others", globals())["rows"])
def test_what_does_not_fit_is_said(name, make, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        checkpoints.classifier(make(), written(tmp_path, tensors_of(name)))
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


def test_moco_v3_of_the_width_of_vit_small_needs_its_twelve_heads(tmp_path):
    """Only the positions give away that it is not DeiT's or DINO's, which has six; all shapes are equal."""
    make = functools.partial(ViT, 4, width=384, depth=1, grid=4, positions="sinusoidal")
    shapes = checkpoints.shapes(make(heads=12), "timm")
    assert shapes == checkpoints.shapes(make(heads=6), "timm")
    tensors = {f"base_encoder.{name}": np.zeros(shape, np.float32) for name, shape in shapes.items()}
    tensors["base_encoder.pos_embed"][0, 1:] = patch_sinusoids(4, 4, 384)
    path = written(tmp_path, tensors)
    with pytest.raises(InputError, match="whose ViT-S has 12 heads, not 6: set ViT.heads = 12"):
        checkpoints.load(make(heads=6), path)
    assert "12 heads as in ViT.heads" in str(checkpoints.load(make(heads=12), path))


def test_a_read_transformer_is_attacked_at_any_size(tmp_path):
    """Its images have no size until they are there; then the positions are those of their size."""
    model, _ = checkpoints.classifier(SMALL(heads=2), written(tmp_path, tensors_of("deit")))
    for size in ((16, 16), (24, 20)):
        images = recorded.inputs_of("deit", 2, (*size, 3))
        logits = model(images)["logits"]
        labels = tf.argmax(logits, axis=-1, output_type=tf.int32)
        predictor = from_keras(model)
        result = run_attack(PGD(ThreatModel(epsilon=0.3), steps=5), predictor.logits, images.numpy(), labels.numpy())
        assert np.abs(result.adversarial - images).max() > 0.2
        assert np.any(np.argmax(predictor.logits(result.adversarial), axis=-1) != labels)
