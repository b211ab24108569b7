"""SavedModels that mean harm are refused before they are loaded; those that people really have are not."""

import keras
import numpy as np
import pytest
import stored
import tensorflow as tf
from google.protobuf.message import Message
from hostile import detours, large, programs
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

from tfrobust.errors import InputError
from tfrobust.evaluation.engine import loading
from tfrobust.security import program_files, saved_models
from tfrobust.security.operations import ALLOWED, FILE_INPUTS, SAVERS
from tfrobust.serving import scan
from tfrobust.serving.export import verify


@pytest.fixture
def never_loaded(monkeypatch):
    """Fail a test in which TensorFlow loads a program."""

    def load(*_, **__):
        raise AssertionError("it was loaded")

    monkeypatch.setattr(tf.saved_model, "load", load)


@pytest.mark.usefixtures("never_loaded")
@pytest.mark.parametrize("number", range(len(programs.REFUSED_OPERATIONS)))
def test_operations_that_no_model_needs(export_copy, canary, number):
    operation, location = programs.REFUSED_OPERATIONS[number], programs.PLACES[number % len(programs.PLACES)]
    programs.add_operation(export_copy, operation, location)
    finding = scan.scan(export_copy)[0]
    assert repr(operation)[1:-1] in finding.evidence and "'canary'" in finding.evidence
    assert ("of the graph" in finding.evidence) == (location == "graph")
    with pytest.raises(InputError) as error:
        loading.load(str(export_copy))
    assert len(str(error.value)) <= 300 and str(error.value).isprintable()


@pytest.mark.parametrize("location", programs.PLACES)
def test_each_place_is_looked_at(export_copy, location):
    programs.add_operation(export_copy, "WriteFile", location)
    assert [finding.verdict for finding in scan.scan(export_copy)] == ["fail"]


CASES = programs.CASES | detours.CASES | large.CASES
assert len(CASES) == len(programs.CASES) + len(detours.CASES) + len(large.CASES)


@pytest.mark.usefixtures("never_loaded")
@pytest.mark.parametrize("name", CASES)
def test_the_command_refuses(export_copy, not_judged, name):
    build, part = CASES[name]
    build(export_copy)
    not_judged(model=export_copy, part=part)


@pytest.mark.parametrize("name", ["huge constant", "link out", "no program"])
def test_the_tool_for_other_programs(export_copy, valid, capsys, name):
    programs.CASES[name][0](export_copy)
    assert scan.main([str(export_copy), str(valid / "export")]) == 2
    streams = capsys.readouterr()
    assert streams.err.startswith(str(export_copy)) and len(streams.err.splitlines()) == 1
    assert streams.out.splitlines() == [f"{valid / 'export'}: nothing found; it may be loaded"]


def test_the_tool_s_other_ends(valid, tmp_path, capsys):
    assert scan.main([str(valid / "export")]) == 0
    assert scan.main([]) == scan.main(["--help"]) == scan.main([str(tmp_path / "nowhere")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_verify_says_it_too(export_copy):
    programs.add_operation(export_copy, "PrintV2", "nested function")
    result = verify.verify(export_copy)
    assert not result.passed and "'PrintV2'" in result.checks["scan"][0]


class _Writes(tf.Module):
    """Writes the canary when it answers; reads a file of the system into a variable when it is made."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], name="images")])
    def __call__(self, images):
        tf.io.write_file(self.path, "ran")
        return {"logits": tf.reshape(images, (-1, 64))[:, :3]}


def test_the_canary_is_real(tmp_path, canary):
    """Loaded and asked without a scan, such a model does what it was made for."""
    module = _Writes(str(canary))
    tf.saved_model.save(module, str(tmp_path / "bad"), signatures={"serving_default": module.__call__})
    with pytest.raises(InputError, match="'WriteFile'"):
        loading.load(str(tmp_path / "bad"))
    assert not canary.exists()
    loaded = tf.saved_model.load(str(tmp_path / "bad"))
    loaded.signatures["serving_default"](images=np.zeros((1, 8, 8, 1), np.float32))
    assert canary.read_text() == "ran"
    canary.unlink()


def test_a_program_too_large_is_not_read(export_copy, monkeypatch):
    monkeypatch.setattr("tfrobust.security.program_files._LARGEST_PROGRAM", 100)
    assert "more than 100" in scan.scan(export_copy)[0].evidence
    monkeypatch.undo()
    monkeypatch.setattr("tfrobust.security.program_graph._MOST_NODES", 3)
    assert "more than 3" in scan.scan(export_copy)[0].evidence
    monkeypatch.undo()
    monkeypatch.setattr("tfrobust.security.program_sizes.MOST_STRUCTURES", 3)
    assert "too many parts, more than 3" in scan.scan(export_copy)[0].evidence
    monkeypatch.setattr("tfrobust.security.program_files._MOST_FILES", 1)
    assert "more than 1 files" in scan.scan(export_copy)[0].evidence


# ---------------------------------------------------------------------------------------- what passes


def test_the_list_knows_only_operations_of_tensorflow_and_none_twice():
    operations = set(dir(tf.raw_ops)) | {"_Arg", "_Retval"}
    # TensorFlow 1 had operations by reference, which tf.raw_ops leaves out.
    old = {"Assign", "AssignAdd", "AssignSub", "HashTable", "InitializeTable", "IsVariableInitialized", "Variable"}
    old |= {"LookupTableExport", "LookupTableFind", "LookupTableImport", "LookupTableSize", "VariableV2"}
    assert (ALLOWED | SAVERS | set(FILE_INPUTS)) - operations - old <= {"InitializeTableFromTextFile"}
    assert not ALLOWED & (SAVERS | set(FILE_INPUTS))


def test_parts_are_counted_before_they_are_parsed(valid, export_copy, monkeypatch):
    content = (valid / "export" / "saved_model.pb").read_bytes()
    program = saved_model_pb2.SavedModel.FromString(content)
    count, waiting = 0, [program]
    while waiting:
        for field, value in waiting.pop().ListFields():
            if field.message_type is None:
                continue
            is_map = field.message_type.GetOptions().map_entry
            parts = list(value.values()) if is_map else list(value) if field.is_repeated else [value]
            count += len(parts) * (2 if is_map and isinstance(parts[0], Message) else 1)
            waiting += [part for part in parts if isinstance(part, Message)]
    assert program_files.count_messages(content, program.DESCRIPTOR, 10**9) == count
    monkeypatch.setattr(program_files, "MOST_PARTS", count - 1)
    (finding,) = scan.scan(export_copy)
    assert f"more than {count - 1} parts" in finding.evidence


@pytest.mark.parametrize("end", [b"\xff" * 20, b"\x12\xff", b"\x12\x05ab", b"\x0b\x12\0\x0c", b"\x80", b"\0"])
def test_damaged_parts_end_the_count(end):
    kind = saved_model_pb2.SavedModel.DESCRIPTOR
    assert 3 <= program_files.count_messages(b"\x12\0" * 3 + end, kind, 100) <= 5


def test_why_it_is_a_list():
    """TensorFlow's own "stateless" covers operations that read files, write to URLs or end the process."""
    stateless = ["ReadFile", "MatchingFiles", "ImmutableConst", "DecodeProtoV2", "DebugIdentity", "Abort"]
    assert not any(op_def_registry.get(name).is_stateful for name in [*stateless, "PyFuncStateless"])
    assert op_def_registry.get("ReadVariableOp").is_stateful
    assert not ALLOWED & {*stateless, "PyFuncStateless"}


def _picture_model():
    inputs = keras.Input((16, 16, 3))
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.RandomFlip(),
        keras.layers.RandomRotation(0.1),
        keras.layers.RandomZoom(0.1),
        keras.layers.RandomContrast(0.1),
        keras.layers.Resizing(12, 12),
        keras.layers.ZeroPadding2D(1),
        keras.layers.Conv2D(4, 3, activation="gelu"),
        keras.layers.DepthwiseConv2D(3, padding="same"),
        keras.layers.SeparableConv2D(4, 3, padding="same"),
        keras.layers.Conv2DTranspose(4, 2),
        keras.layers.BatchNormalization(),
        keras.layers.GroupNormalization(2),
        keras.layers.LayerNormalization(),
        keras.layers.PReLU(),
        keras.layers.UpSampling2D(2, interpolation="bilinear"),
        keras.layers.MaxPooling2D(),
        keras.layers.AveragePooling2D(2),
        keras.layers.SpatialDropout2D(0.1),
        keras.layers.GaussianNoise(0.1),
    ]
    hidden = inputs
    for layer in layers:
        hidden = layer(hidden)
    tokens = keras.layers.Reshape((-1, 4))(hidden)
    tokens = keras.layers.MultiHeadAttention(2, 2)(tokens, tokens)
    tokens = keras.layers.LSTM(3, return_sequences=True)(keras.layers.Conv1D(4, 3)(tokens))
    tokens = keras.layers.Bidirectional(keras.layers.GRU(3))(tokens)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(keras.layers.Dropout(0.1)(tokens)))


def _plain_model():
    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(3)])


def _text_model(tmp_path):
    (tmp_path / "words.txt").write_text("good\nbad\n")
    inputs = keras.Input((), dtype="string")
    vectors = keras.layers.TextVectorization(ngrams=2, output_sequence_length=5, vocabulary=["good", "bad", "good bad"])
    looked_up = keras.layers.StringLookup(vocabulary=str(tmp_path / "words.txt"))(inputs)
    hashed = keras.layers.Hashing(4)(inputs)
    parts = [keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, 3)(vectors(inputs)))]
    parts += [keras.layers.Embedding(9, 3)(ids) for ids in (looked_up, hashed)]
    return keras.Model(inputs, keras.layers.Dense(2)(keras.layers.Add()(parts)))


class _Tables(tf.Module):
    """Lookup tables of a file and in memory, a random generator, a loop, and a string on its way."""

    def __init__(self, tmp_path):
        super().__init__()
        self.words = tf.lookup.StaticHashTable(_lines(tmp_path), -1)
        self.counts = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        self.random = tf.random.Generator.from_seed(1)
        self.scale = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def __call__(self, words):
        values = self.words.lookup(tf.strings.lower(words)) + self.counts.lookup(words)
        noise = self.random.normal([1])[0] * tf.random.normal([])
        total = tf.map_fn(lambda value: tf.cast(value, tf.float32) * self.scale, values, fn_output_signature=tf.float32)
        tf.debugging.assert_all_finite(total, "finite")
        return {"logits": tf.stack([total, total + noise], axis=1)}


def _lines(tmp_path):
    (tmp_path / "lines.txt").write_text("good\nbad\n")
    index = tf.lookup.TextFileIndex
    path = str(tmp_path / "lines.txt")
    return tf.lookup.TextFileInitializer(path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)


def _tables(tmp_path, target):
    module = _Tables(tmp_path)
    tf.saved_model.save(module, target, signatures={"serving_default": module.__call__})


def _of_tensorflow_1(tmp_path, target):
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        words = v1.placeholder(tf.string, [None])
        table = v1.lookup.StaticHashTable(_lines(tmp_path), -1)
        weights = v1.get_variable("weights", initializer=[[1.0, 2.0]], use_resource=False)
        logits = tf.cast(table.lookup(words), tf.float32)[:, None] @ weights
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        v1.saved_model.simple_save(session, target, {"words": words}, {"logits": logits}, v1.tables_initializer())


@pytest.mark.parametrize("reader", ["words", "same"])
def test_an_asset_of_its_own_may_be_read_directly_and_by_an_identity(export_copy, reader):
    def change(graph):
        programs.new_constant(graph.graph_def.node, "words", "")
        programs.new_asset(export_copy, graph, "words:0")
        programs.new_node(graph.graph_def.node, "same", "Identity", ["words"])
        programs.new_table(graph.graph_def.node, reader)

    programs.changed(change)(export_copy)
    assert scan.scan(export_copy) == []


@pytest.mark.usefixtures("rehearsed_here")
@pytest.mark.parametrize("write", stored.rows(globals(), "what_people_really_have_passes_and_loads"))
def test_what_people_really_have_passes_and_loads(tmp_path, write):
    write(tmp_path, str(tmp_path / "model"))
    assert scan.scan(tmp_path / "model") == []
    assert "serving_default" in saved_models.load(tmp_path / "model").signatures
