"""Weights from PyTorch: logits of recorded networks, every tensor accounted for, what does not fit said in one line."""

import functools
import os
import pathlib

import keras  # noqa: F401
import numpy as np
import pytest
import recordings
import stored
from models import recorded

from oracles import seeded_networks
from tfrobust.errors import InputError
from tfrobust.keras.models import CNN, LinearHead, MLPHead, ResNet, ResNet18, ResNet50, WideResNet  # noqa: F401
from tfrobust.models.weights import checkpoints

GOLDEN = recordings.arrays("checkpoints")
tensors_of = functools.partial(recorded.tensors_of, "checkpoints")
FULL_SIZE = os.environ.get("TFROBUST_FULL_SIZE")
PIXELS = {"pixel_mean": seeded_networks.MEAN, "pixel_std": seeded_networks.DEVIATION}
TORCH50 = functools.partial(ResNet50, symmetric=True, kernel_regularization=0.0)
DEEPMIND = functools.partial(WideResNet, symmetric=False, activation="silu", **PIXELS)

# Encoder, size of the images, prefix of the names; without a classifier the embedding is recorded.
NETWORKS = stored.cases(__file__, "networks", globals(), "tables.toml")
WITHOUT_CLASSIFIER = ("simclr_resnet18", "supcon_resnet50")
# Encoder, family, name and classes of the head, size of the images.
FULL = stored.cases(__file__, "full", globals(), "tables.toml")


def written(folder, tensors: dict, suffix: str = ".npz") -> pathlib.Path:
    path = folder / f"weights{suffix}"
    if suffix == ".npz":
        np.savez(path, **tensors)
    else:
        safetensors = pytest.importorskip("safetensors.numpy")
        safetensors.save_file({name: np.array(value, order="C") for name, value in tensors.items()}, path)
    return path


# ------------------------------------------------------------------------------------------------------ parity


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_answers_as_in_pytorch(name, tmp_path):
    """Random weights and batch statistics; the formats take turns."""
    make, size, prefix = NETWORKS[name]
    suffix = (".npz", ".safetensors")[list(NETWORKS).index(name) % 2]
    tensors, encoder = tensors_of(name), make()
    path = written(tmp_path, tensors, suffix)
    encoder.build((None, None, None, 3))
    recorded.forget(encoder)
    if name in WITHOUT_CLASSIFIER:
        loaded, outputs = checkpoints.load(encoder, path), encoder(recorded.inputs_of(name, 2, (*size, 3)))
    else:
        model, loaded = checkpoints.classifier(encoder, path)
        outputs = model(recorded.inputs_of(name, 2, (*size, 3)))["logits"]
    assert recorded.relative_error(outputs, GOLDEN[f"{name}/outputs"]) < 2e-6
    assert loaded.prefix == prefix and sorted([*loaded.used, *loaded.ignored]) == sorted(tensors)
    told = {ignored.rpartition(".")[2] for ignored in loaded.ignored}
    learned = {ignored for ignored in loaded.ignored if ignored.endswith(("weight", "bias", "running_mean"))}
    assert "num_batches_tracked" in told
    if name == "trades_wide_resnet":
        assert learned and all(tensor_name.startswith("module.sub_block1.") for tensor_name in learned)
    elif name in WITHOUT_CLASSIFIER:
        assert learned and all(tensor_name.split(".")[0] in ("projector", "head") for tensor_name in learned)
    else:
        assert not learned


@pytest.mark.skipif(not FULL_SIZE, reason="networks of full size: set TFROBUST_FULL_SIZE=1; takes minutes and 6 GB")
@pytest.mark.parametrize("name", FULL)
def test_a_network_of_full_size_answers_as_in_pytorch(name, tmp_path):
    make, family, head, classes, size = FULL[name]
    encoder = make()
    shapes = checkpoints.shapes(encoder, family)
    shapes |= {f"{head}.weight": (classes, encoder.dim), f"{head}.bias": (classes,)}
    path = written(tmp_path, {key: seeded_networks.torch_tensor(name, key, shape) for key, shape in shapes.items()})
    recorded.forget(encoder)
    model, _ = checkpoints.classifier(encoder, path)
    path.unlink()  # pytest keeps its folders, and this is up to a gigabyte
    outputs = model(recorded.inputs_of(name, 2, (size, size, 3)))["logits"]
    error = recorded.relative_error(outputs, GOLDEN[f"{name}/outputs"])
    print(f"{name}: {error:.1e}")
    assert error < 2e-5


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats_become_float32_and_every_branch_gets_the_same(tmp_path, dtype):
    encoder = WideResNet(10, 1, branches=2)
    tensors = {
        key: seeded_networks.torch_tensor("branches", key, shape).astype(dtype)
        for key, shape in checkpoints.shapes(encoder).items()
    }
    recorded.forget(encoder)
    loaded = checkpoints.load(encoder, written(tmp_path, tensors, ".safetensors"))
    assert loaded.naming == "TRADES" and {*loaded.used} == {*tensors}
    images = recorded.inputs_of("branches", 2, (8, 8, 3))
    np.testing.assert_array_equal(encoder(images, branch=0), encoder(images, branch=1))
    assert np.all(np.isfinite(encoder(images)))


def test_a_method_gets_its_encoder_and_head(tmp_path):
    from tfrobust.methods.supervised import Supervised

    method = Supervised(WideResNet(10, 1), LinearHead(3))
    shapes = checkpoints.shapes(method.encoder) | {"fc.weight": (3, 64), "fc.bias": (3,)}
    tensors = {key: seeded_networks.torch_tensor("method", key, shape) for key, shape in shapes.items()}
    checkpoints.load(method, written(tmp_path, tensors))
    np.testing.assert_array_equal(method.head.chain[0].kernel, tensors["fc.weight"].T)
    np.testing.assert_array_equal(
        method.encoder.stage_layers[0][0].chain[0].kernel, tensors["conv1.weight"].transpose(2, 3, 1, 0)
    )


# ------------------------------------------------------------------------------------------- what does not fit

ENCODER = functools.partial(WideResNet, 10, 1, **PIXELS)


@pytest.fixture(scope="module")
def fitting():
    """A classifier of five classes, and tensors that fit it; no test changes either."""
    encoder, head = ENCODER(), LinearHead(5)
    shapes = checkpoints.shapes(encoder) | {"fc.weight": (5, 64), "fc.bias": (5,)}
    head.build((None, 64))
    return checkpoints._Classifier(encoder, head), {key: np.ones(shape, np.float32) for key, shape in shapes.items()}


LAST = "block3.layer.0.conv2.weight"
MISFITS = stored.cases(__file__, "misfits", globals())


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_said_in_one_line_and_nothing_changes(fitting, tmp_path, case):
    spoil, message = MISFITS[case]
    model, fitting_tensors = fitting
    before = [variable.numpy() for variable in model.encoder.variables + model.head.variables]
    tensors = {name: value.copy() for name, value in fitting_tensors.items()}
    with np.errstate(over="ignore"):
        spoil(tensors)
        with pytest.raises(InputError, match=message) as caught:
            checkpoints.load(model, written(tmp_path, tensors))
    assert len(str(caught.value)) <= 300 and "\n" not in str(caught.value)
    after = [variable.numpy() for variable in model.encoder.variables + model.head.variables]
    assert all(np.array_equal(old, other) for old, other in zip(before, after, strict=True))


@pytest.mark.parametrize("chosen, other", [("key.", "query."), ("key.", ""), ("", "key.")])
def test_the_prefix_tells_one_of_two_networks(fitting, tmp_path, chosen, other):
    _, tensors = fitting
    both = {f"{chosen}{name}": value for name, value in tensors.items()}
    both |= {f"{other}{name}": 2 * value for name, value in tensors.items()}
    both |= {"queue": np.ones(2)} if chosen else {}
    encoder = ENCODER()
    loaded = checkpoints.load(encoder, written(tmp_path, both), prefix=chosen)
    assert loaded.prefix == chosen and sorted([*loaded.used, *loaded.ignored]) == sorted(both)
    assert {float(np.max(variable)) for variable in encoder.variables} <= {0.0, 1.0}


def test_what_belongs_to_the_chosen_network_is_accounted_for(fitting, tmp_path):
    tensors = {f"key.{name}": value for name, value in fitting[1].items()} | {"key.block4.weight": np.ones(3)}
    with pytest.raises(InputError, match="unused tensor key.block4"):
        checkpoints.load(ENCODER(), written(tmp_path, tensors), prefix="key.")


@pytest.mark.parametrize("make, family, message", stored.rows(globals(), "another_padding_of_the_same_shapes_is"))
def test_another_padding_of_the_same_shapes_is_refused(make, family, message, tmp_path):
    encoder = make()
    tensors = {name: np.ones(shape, np.float32) for name, shape in checkpoints.shapes(encoder, family).items()}
    with pytest.raises(InputError, match=message):
        checkpoints.load(encoder, written(tmp_path, tensors))


def test_the_stem_is_named(tmp_path):
    tensors = {name: np.ones(shape) for name, shape in checkpoints.shapes(ResNet18("imagenet", width=1)).items()}
    with pytest.raises(InputError, match=r"conv1.weight is \[1, 3, 7, 7\], not \[1, 3, 3, 3\] \(stem='imagenet'\)"):
        checkpoints.load(ResNet18(width=1), written(tmp_path, tensors))


@pytest.mark.parametrize("make, message", stored.rows(globals(), "other_models_are_refused"))
def test_other_models_are_refused(fitting, make, message, tmp_path):
    with pytest.raises(InputError, match=message):
        checkpoints.load(make(), written(tmp_path, fitting[1]))


def test_names_of_an_unknown_family_or_of_a_network_it_has_not():
    with pytest.raises(InputError, match="'timm' names no WideResNet .*torchvision, RobustBench, TRADES, DeepMind"):
        checkpoints.shapes(ENCODER(), "timm")
    with pytest.raises(InputError, match="names no ResNet18"):
        checkpoints.shapes(ResNet18(width=1), "TRADES")
    with pytest.raises(InputError, match="names no ResNet "):
        checkpoints.shapes(ResNet(8, widths=(2, 2, 2)))
