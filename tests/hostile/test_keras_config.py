"""A `.keras` file may name what is in the lists, with arguments of their kinds; Keras never sees any other."""

import copy
import importlib
import json
import random
import sys
import time
import zipfile

import h5py
import keras
import numpy as np
import pytest
import stored
from hostile import honest_keras, keras_files, mutations

from tfrobust import saving
from tfrobust.security import keras_config, keras_names
from tfrobust.security import keras_files as reader

_EVENTS = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "urllib.", "ctypes.dlopen")
_seen: list | None = None


def _watch(event, arguments):
    """Record what a file must not cause: writing, connecting, starting programs, and reading what it names."""
    if _seen is None:
        return
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if writes or (arguments[2] or 0) & 0o1103 or "secret" in str(arguments[0]):
            _seen.append((event, str(arguments[0])))
    elif event.startswith(_EVENTS) or event in ("os.mkdir", "os.remove", "os.rename", "tempfile.mkdtemp"):
        _seen.append((event, str(arguments)[:200]))


@pytest.fixture(scope="module")
def watched():
    """Return a function that runs another one and returns what it caused."""
    sys.addaudithook(_watch)  # for the rest of the process, in which it does nothing
    saving.import_all()

    def run(function):
        global _seen
        _seen = []
        try:
            function()
            return "loaded", _seen
        except ValueError as error:
            assert len(str(error)) <= 300 and "\n" not in str(error)
            return str(error), _seen
        finally:
            _seen = None

    return run


def _described(name, module="keras.layers", registered=None, /, **config):
    return {"class_name": name, "module": module, "registered_name": registered, "config": config}


def _ours(name, /, **config):
    return _described(name, "tfrobust", f"tfrobust>{name}", **config)


def _function(name, module="keras.activations"):
    return {"class_name": "function", "module": module, "config": name, "registered_name": name}


def _tensor(layer, shape=(None, 8, 8, 1), call=0):
    config = {"shape": [*shape], "dtype": "float32", "keras_history": [layer, call, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


def _layer(described, name, *calls):
    described = copy.deepcopy(described)
    described["config"]["name"] = name
    nodes = [{"args": list(arguments), "kwargs": keywords} for arguments, keywords in calls]
    return described | {"name": name, "inbound_nodes": nodes}


_INPUT = _layer(_described("InputLayer", batch_shape=[None, 8, 8, 1]), "i")
_FLAT = _layer(_described("Flatten"), "f", ([_tensor("i")], {}))
_DENSE = _layer(_described("Dense", units=10), "d", ([_tensor("f", (None, 64))], {}))


def _functional(*layers, ends=("d", 0, 0), **more):
    config = {"name": "m", "trainable": True, "layers": [_INPUT, *layers, _FLAT, _DENSE]}
    config |= {"input_layers": [["i", 0, 0]], "output_layers": [[*ends]], **more}
    return {"module": "keras.src.models.functional", "class_name": "Functional", "registered_name": "Functional",
            "config": config}  # fmt: skip


def _called(described, *arguments, **keywords):
    return _functional(_layer(described, "s", (arguments, keywords)))


def _sequential(*layers, **more):
    inputs = _described("InputLayer", batch_shape=[None, 8, 8, 1])
    return _described("Sequential", "keras", name="m", layers=[inputs, *layers]) | more


def _dense(**config):
    return _sequential(_described("Flatten"), _described("Dense", units=10, **config))


def _core(name, **config):
    return _described(name, "keras.src.ops.core", name, **config)


def _doubling(depth):
    """Models that call the one inside twice, so that a call of the outermost makes 2 ** depth calls."""
    inner, first = _described("ReLU"), 0
    for _ in range(depth):
        calls = ([_tensor("i")], {}), ([_tensor("a", call=first)], {})
        config = {"name": "m", "trainable": True, "layers": [_INPUT, _layer(inner, "a", *calls)]}
        config |= {"input_layers": [["i", 0, 0]], "output_layers": [["a", first + 1, 0]]}
        inner, first = _functional() | {"config": config}, 1
    return inner


def _nested(depth):
    inner = _described("ReLU")
    for _ in range(depth):
        inner = _described("TimeDistributed", layer=inner)
    return _sequential(inner)


_FOLDER, _SECRET = "/tmp/secret", "secret"
_CNN = _ours("DigitsCNN", name="e")
_HEAD = _ours("LinearHead", class_count=10)
_TEACHER = _ours("TeacherLogits", path=_SECRET)
# Name -> (description, a part of the refusal).
HOSTILE = stored.cases(__file__, "keras_descriptions", globals())


def _write(path, described, arrays=None):
    """Write a `.keras` file with the weights of a dense layer 64 -> 10."""

    def fill(file):
        for name, array in (arrays or {"0": np.zeros((64, 10), "f4"), "1": np.zeros(10, "f4")}).items():
            file.create_group("layers/dense/vars", track_order=True) if "layers" not in file else None
            file["layers/dense/vars"][name] = array

    keras_files._archive(path, weights=keras_files._weights(fill), config=json.dumps(described))
    return path


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_description_is_refused_by_name_and_causes_nothing(name, tmp_path, watched, monkeypatch):
    monkeypatch.chdir(tmp_path)
    described, part = HOSTILE[name]
    path = _write(tmp_path / "innocent.keras", described)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret.h5").write_bytes(b"")
    before = sorted(entry.name for entry in tmp_path.iterdir())
    started = time.monotonic()
    refusal, caused = watched(lambda: saving.load(path))
    assert part in refusal and refusal.startswith("innocent.keras cannot be loaded: "), refusal
    assert caused == [] and sorted(entry.name for entry in tmp_path.iterdir()) == before
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("described", [_functional(), _dense(), _sequential(_described("ReLU")), _doubling(3)])
def test_what_the_hostile_descriptions_are_made_of_is_honest(described):
    keras_config.check(described)


def test_layers_get_no_more_memory_than_the_weights_of_the_file(tmp_path, monkeypatch):
    """A kernel of 2 ** 30 rows follows from the shape of the input, which no argument shows."""
    monkeypatch.setattr("tfrobust.security.rehearsal.rehearse", lambda *_: None)
    described = _dense()
    described["config"]["layers"][0]["config"]["batch_shape"] = [None, 2**15, 2**15, 1]
    with pytest.raises(ValueError, match=r"ask for more weights than the 2600 bytes"):
        reader.load(_write(tmp_path / "model.keras", described))
    small = _write(tmp_path / "small.keras", _dense(), {"0": np.zeros((64, 10), "f4"), "1": np.zeros(10, "f4")})
    assert keras.layers.Layer.add_weight.__name__ == "add_weight"
    assert reader.load(small).count_params() == 650
    # A file holds no adapters, here 8 x rank + rank x 8, which are at most as large as its weights.
    with reader.weights_within(4 * 8 * 8):
        keras.layers.Dense(8, use_bias=False, lora_rank=4).build((None, 8))
    larger = keras.layers.Dense(8, use_bias=False, lora_rank=5)
    with pytest.raises(ValueError, match="ask for more weights"), reader.weights_within(4 * 8 * 8):
        larger.build((None, 8))
    assert [tuple(weight.shape) for weight in larger.weights] == [(8, 8), (8, 5)]  # the last was not allocated


def test_every_layer_of_keras_is_listed_or_left_out_on_purpose():
    """A new version of Keras shows its new layers here."""
    left_out = {
        "runs a function or a file": {"Lambda", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper"},
        "reads text": {"StringLookup", "IntegerLookup", "TextVectorization", "Hashing", "HashedCrossing"},
        "a base class, no layer, or of boxes": {"Layer", "Wrapper", "InputSpec", "MaxNumBoundingBoxes"},
    }
    offered = {name: item for name, item in vars(keras.layers).items() if isinstance(item, type)}
    listed = keras_names.CLASSES["keras.layers"][1]
    ids = {id(item) for name, item in offered.items() if name in listed}  # Convolution2D is Conv2D
    assert {name for name, item in offered.items() if id(item) not in ids} == set.union(*left_out.values())
    assert all(name in offered for name in listed)


def test_every_listed_name_exists_in_keras():
    for module, (_, listed) in keras_names.CLASSES.items():
        assert not [name for name in listed if not hasattr(importlib.import_module(module), name)], module


@pytest.mark.parametrize("area, role", [("losses", keras_names.LOSS), ("metrics", keras_names.METRIC)])
def test_every_word_of_keras_for_a_listed_class_is_listed(area, role):
    """A new version of Keras shows its new words here."""
    words = importlib.import_module(f"keras.src.{area}").ALL_OBJECTS_DICT
    classes = {getattr(getattr(keras, area), name) for name in keras_names.CLASSES[f"keras.{area}"][1]}
    expected = {word for word, item in words.items() if item in classes or not isinstance(item, type)}
    assert {"kl_divergence", "top_k_categorical_accuracy", "MAPE"} & {*words} <= expected <= keras_names.NAMED[role]
    for item in {words[word] for word in expected if not isinstance(words[word], type)}:
        model = keras.Sequential([keras.Input((3,))])
        model.compile("sgd", item, metrics=[item], weighted_metrics=["acc"])
        keras_config.check(json.loads(model.to_json()))


def test_no_listed_operation_takes_a_function():
    import inspect

    for module, (_, listed) in keras_names.CLASSES.items():
        if module.startswith("keras.src.ops"):
            for name in listed:
                operation = getattr(sys.modules[module], name)
                parameters = {**inspect.signature(operation.__init__).parameters}
                parameters |= inspect.signature(operation.call).parameters
                assert not {"f", "fn", "func", "function", "cond", "body", "branches", "true_fn"} & {*parameters}, name


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # compiled and not trained
@pytest.mark.filterwarnings("ignore:Layer InputLayer does not have a `quantize`")
@pytest.mark.parametrize("name", honest_keras.MODELS)
def test_an_honest_file_loads_with_its_weights(name, tmp_path):
    model = honest_keras.MODELS[name]()
    saving.save(model, tmp_path / "model.keras")
    loaded = saving.load(tmp_path / "model.keras")
    assert type(loaded) is type(model) and loaded.compiled == model.compiled
    # Float8 changes the order of the weights; of a low-rank update Keras saves the product.
    old, new = (
        sorted(
            (str(weight.shape), weight.numpy().tobytes()) for weight in candidate.weights if "lora" not in weight.path
        )
        for candidate in (model, loaded)
    )
    assert old == new


@pytest.mark.rest
@pytest.mark.parametrize("name", ["ConvNeXtTiny", "DenseNet121", "EfficientNetB0", "EfficientNetV2B0", "InceptionV3",
                                  "InceptionResNetV2", "MobileNet", "MobileNetV2", "MobileNetV3Small", "NASNetMobile",
                                  "ResNet50", "ResNet50V2", "VGG16", "Xception"])  # fmt: skip
def test_the_networks_of_keras_applications_are_read(name):
    network = getattr(keras.applications, name)(weights=None, include_top=False, pooling="avg")
    keras_config.check(json.loads(network.to_json()))


@keras.saving.register_keras_serializable(package="tests")
class Scaled(keras.layers.Layer):
    """A user's own layer, with arguments of every kind."""

    def __init__(self, note="", inner=None, activation=None, **keywords):
        super().__init__(**keywords)
        self.note, self.activation = note, keras.activations.get(activation)
        self.inner = keras.layers.deserialize(inner) if isinstance(inner, dict) else inner

    def get_config(self):
        arguments = {"note": self.note, "inner": keras.layers.serialize(self.inner), "activation": halved}
        return super().get_config() | arguments

    def call(self, inputs):
        return self.activation(self.inner(inputs))


@keras.saving.register_keras_serializable(package="tests")
def halved(inputs):
    return inputs / 2


def test_classes_of_the_users_own_code_stay_allowed(tmp_path):
    layer = Scaled("a text: /any/where", keras.layers.Dense(2), halved)
    model = keras.Sequential([keras.Input((3,)), layer, keras.layers.Dense(2, activation=halved)])
    saving.save(model, tmp_path / "model.keras")
    loaded = saving.load(tmp_path / "model.keras")
    images = np.ones((1, 3), "f4")
    np.testing.assert_array_equal(loaded(images), model(images))
    assert loaded.layers[0].note == layer.note
    described = _sequential(_described("Scaled", None, "tests>Scaled", inner=_described("TFSMLayer", filepath="x")))
    with pytest.raises(ValueError, match="keras.layers.TFSMLayer"):
        keras_config.check(described)


# ---------------------------------------------------------------------------------------------------- fuzz

_SPOILS = tuple(stored.table(globals(), "spoils"))


def _fuzz_model():
    images = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(2, 3, activation="relu", kernel_regularizer="l2")(images / 2)
    hidden = keras.layers.BatchNormalization()(hidden)
    hidden = keras.layers.Flatten()(keras.ops.concatenate([hidden[:, :3], hidden[:, 3:]], axis=1))
    model = keras.Model(images, keras.Sequential([keras.Input((72,)), keras.layers.Dense(3)])(hidden))
    model.compile("adam", "mse")
    return model


@pytest.mark.rest
@pytest.mark.parametrize("start", range(0, 400, 40))
def test_a_changed_description_is_refused_or_harmless(start, tmp_path, watched, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "secret.h5").write_bytes(b"")
    monkeypatch.setattr("tfrobust.security.rehearsal.rehearse", lambda *_: None)  # a process for each takes too long
    path = tmp_path / "model.keras"
    _fuzz_model().save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(parts["config.json"])
    before = sorted(entry.name for entry in tmp_path.iterdir())
    for number in range(start, start + 40):
        spoiled = mutations.change_json(copy.deepcopy(description), random.Random(number), _SPOILS)
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (parts | {"config.json": json.dumps(spoiled)}).items():
                archive.writestr(name, content)
        _, caused = watched(lambda: saving.load(path))
        assert caused == [], number
    assert sorted(entry.name for entry in tmp_path.iterdir()) == before


def test_weights_that_lie_elsewhere_are_refused_before_anything_is_built(tmp_path):
    def fill(file):
        file["layers"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/weights")

    keras_files._archive(tmp_path / "model.keras", weights=keras_files._weights(fill))
    with pytest.raises(ValueError, match="is a link"):
        reader.check(tmp_path / "model.keras")
