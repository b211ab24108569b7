"""LiteRT files of others are checked before an interpreter sees them, and run in a process of their own first."""

import os
import random
import sys
import tracemalloc

import flatbuffers
import numpy as np
import pytest
import stored
from hostile import litert_files as hostile
from hostile.small import write_litert
from tensorflow.lite.python import schema_py_generated as schema

from tfrobust.errors import InputError
from tfrobust.security import flatbuffer, litert_files, litert_schema, rehearsal, rehearsal_process
from tfrobust.serving import scan


@pytest.fixture(scope="module")
def small(valid):
    """A whole file."""
    write_litert(valid)
    return valid / "model.tflite"


@pytest.fixture
def never_run(monkeypatch):
    """Fail a test in which a file is run."""

    def run(*_):
        raise AssertionError("it was run")

    monkeypatch.setattr(rehearsal, "run", run)


def _refused(path, content: bytes, part: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        litert_files.load(path)
    line = str(error.value)
    assert part in line and len(line) <= 300 and line.isprintable(), line
    assert [finding.evidence in line for finding in litert_files.scan(path)] == [True]


@pytest.mark.usefixtures("never_run")
@pytest.mark.parametrize("name", hostile.CASES)
def test_a_changed_object_is_refused(small, tmp_path, name):
    change, part = hostile.CASES[name]
    model = hostile.unpacked(small.read_bytes())
    assert litert_files.scan_content(hostile.packed(model)) == []
    change(model)
    _refused(tmp_path / "bad.tflite", hostile.packed(model), part)


@pytest.mark.usefixtures("never_run")
@pytest.mark.parametrize("name", hostile.DAMAGED)
def test_a_damaged_file_is_refused(small, tmp_path, name):
    change, part = hostile.DAMAGED[name]
    _refused(tmp_path / "bad.tflite", change(small.read_bytes()), part)


@pytest.mark.usefixtures("never_run")
def test_no_byte_makes_the_scan_fail(small):
    """Any file is refused or passes; reading outside of it would raise, or read from its other end."""
    original, chance = small.read_bytes(), random.Random(0)
    verdicts = {True: 0, False: 0}
    for _ in range(1000):
        content = bytearray(original)
        for _ in range(chance.choice((1, 3))):
            content[chance.randrange(len(content))] = chance.choice((0, 255, 128, chance.randrange(256)))
        verdicts[not litert_files.scan_content(bytes(content[: chance.choice((None, chance.randrange(2000)))]))] += 1
    assert min(verdicts.values()) > 50


@pytest.mark.usefixtures("never_run")
def test_files_that_take_forever_or_everything(small, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.tflite")
    (finding,) = litert_files.scan(tmp_path / "pipe.tflite")
    assert "not a regular file" in finding.evidence
    with pytest.raises(InputError, match="not a regular file"):
        litert_files.load(tmp_path / "pipe.tflite")
    with pytest.raises(FileNotFoundError):
        litert_files.load(tmp_path / "none.tflite")
    for module, name, part in stored.table(globals(), "files_that_take_forever_or_everything"):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, 100 if name == "LARGEST" else 10 if module is flatbuffer else 1)
            _refused(tmp_path / "large.tflite", small.read_bytes(), part)


@pytest.mark.usefixtures("never_run")
def test_one_part_in_a_million_places_is_counted_each_time(tmp_path):
    """A thousand subgraphs that are one of a thousand tensors, which are one: small, and a million parts."""
    builder = flatbuffers.Builder(1024)

    def repeated(part, count=1001):
        builder.StartVector(4, count, 4)
        for _ in range(count):
            builder.PrependUOffsetTRelative(part)
        return builder.EndVector()

    tensors = repeated(schema.TensorT().Pack(builder))
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    graphs = repeated(schema.SubGraphEnd(builder))
    schema.ModelStart(builder)
    schema.ModelAddVersion(builder, 3)
    schema.ModelAddSubgraphs(builder, graphs)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    _refused(tmp_path / "bad.tflite", bytes(builder.Output()), "takes more than its size")


@pytest.mark.usefixtures("never_run")
def test_one_name_of_a_megabyte_in_a_thousand_places_is_not_read_each_time(tmp_path):
    builder = flatbuffers.Builder(2**21)
    name = builder.CreateString("x" * 2**20)
    schema.MetadataStart(builder)
    schema.MetadataAddName(builder, name)
    part = schema.MetadataEnd(builder)
    builder.StartVector(4, 1000, 4)
    for _ in range(1000):
        builder.PrependUOffsetTRelative(part)
    listed = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddVersion(builder, 3)
    schema.ModelAddMetadata(builder, listed)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    tracemalloc.start()
    _refused(tmp_path / "bad.tflite", bytes(builder.Output()), "takes more than its size")
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.usefixtures("never_run")
def test_evaluate_refuses_it_too(small, tmp_path, not_judged):
    model = hostile.unpacked(small.read_bytes())
    hostile.CASES["custom operator"][0](model)
    (tmp_path / "bad.tflite").write_bytes(hostile.packed(model))
    not_judged(model=tmp_path / "bad.tflite", part="is not loaded: it has the custom operator 'FlexWriteFile'")


def test_a_whole_file_passes_and_is_run_on_one_example_and_on_two(small, monkeypatch):
    batches = []
    invoke = rehearsal_process._invoke

    def watched(interpreter, batch):
        batches.append(None if batch is None else batch.shape)
        return invoke(interpreter, batch)

    monkeypatch.setattr(rehearsal_process, "_invoke", watched)
    assert rehearsal_process.rehearse(str(small)) == ["call", ""]
    assert batches == [None, (1, 8, 8, 1), (2, 8, 8, 1)]
    assert litert_files.load(small) == small.read_bytes()


def test_what_the_scan_cannot_tell_ends_in_the_other_process(small, tmp_path):
    """A stride of 0 divides by it."""
    model = hostile.unpacked(small.read_bytes())
    options = hostile._first(model, "CONV_2D").builtinOptions
    options.strideH = options.strideW = 0
    path = tmp_path / "bad.tflite"
    path.write_bytes(hostile.packed(model))
    assert litert_files.scan(path) == []
    with pytest.raises(InputError, match="LiteRT (crashes on it|cannot load it)"):
        litert_files.load(path)


def test_the_package_is_missing(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(InputError, match=r"pip install 'tfrobust\[litert\]'"):
        litert_files.load(small)


def test_the_command(small, tmp_path, capsys):
    bad = tmp_path / "bad.tflite"
    bad.write_bytes(small.read_bytes()[:-1000])
    assert scan.main([str(small), str(bad), str(tmp_path / "none.tflite")]) == 2
    streams = capsys.readouterr()
    assert streams.out.splitlines() == [f"{small}: nothing found; it may be loaded"]
    assert [line.split(":")[0] for line in streams.err.splitlines()] == [str(bad), str(tmp_path / "none.tflite")]


# ----------------------------------------------------------------------------------- against the generated schema


def _plain(value):
    if value is None or isinstance(value, (str, bytes)):
        return value.decode() if isinstance(value, bytes) else value
    if isinstance(value, (list, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return [_plain(item) for item in value.values()]
    return [_plain(item) for item in vars(value).values()] if hasattr(value, "__dict__") else value


_TOP = tuple("Model SubGraph Tensor OperatorCode Buffer Metadata SignatureDef TensorMap Quantization".split())
_OPTIONS = sorted(set(litert_schema.TABLES) - {*_TOP, "Operator"})


@pytest.mark.parametrize("name", _OPTIONS)
def test_options_are_read_as_they_were_written(name):
    """The kinds and the order of the fields are those of the generated classes."""
    written = getattr(schema, f"{name}T")()
    for number, (field, default) in enumerate(vars(written).items()):
        values = {bool: not default, float: 1.5 + number, int: 1 + number, type(None): [7, 8]}
        setattr(written, field, values[type(default)])
    builder = flatbuffers.Builder(64)
    builder.Finish(written.Pack(builder))
    read = flatbuffer.Reader(bytes(builder.Output()), litert_schema.TABLES).root(name)
    assert _plain(read) == _plain(written)


def test_a_model_is_read_as_the_generated_classes_read_it(small):
    content = small.read_bytes()
    read = flatbuffer.Reader(content, litert_schema.TABLES).root("Model")
    unpacked = hostile.unpacked(content)
    graph, tensors = unpacked.subgraphs[0], read["subgraphs"][0]["tensors"]
    for field, attribute in (("shape", "shape"), ("type", "type"), ("buffer", "buffer"), ("name", "name")):
        assert [_plain(tensor[field]) for tensor in tensors] == [
            _plain(getattr(tensor, attribute)) for tensor in graph.tensors
        ]
    for field in ("inputs", "outputs"):
        assert read["subgraphs"][0][field].tolist() == list(getattr(graph, field))
        listed = zip(read["subgraphs"][0]["operators"], graph.operators, strict=True)
        assert all(operator[field].tolist() == list(getattr(other, field)) for operator, other in listed)
    stored = zip(read["buffers"], unpacked.buffers, strict=True)
    assert all(_plain(buffer["data"]) == _plain(other.data) for buffer, other in stored)
    assert _plain(read["signature_defs"][0]["outputs"]) == _plain(unpacked.signatureDefs[0].outputs)


def test_each_operator_of_the_list_has_its_number():
    for operator, options in litert_schema.OPTIONS.items():
        assert hasattr(schema.BuiltinOperator, operator) and hasattr(schema.BuiltinOptions, options)
    forbidden = {"CUSTOM", "WHILE", "IF", "CALL", "CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "HASHTABLE", "DELEGATE"}
    assert not forbidden & set(litert_schema.OPTIONS)
