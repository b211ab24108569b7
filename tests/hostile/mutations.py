"""Random changes of valid files that know what these are made of: protocol buffers, tables, JSON, arrays, text."""

import contextlib
import copy
import io
import json
import pathlib
import random
import re
import struct
import warnings
import zipfile

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import Message
from hostile import variable_tables as tables
from tensorflow.core.protobuf import saved_model_pb2, tensor_bundle_pb2, trackable_object_graph_pb2

from tfrobust.security import archives, variable_index
from tfrobust.training import checkpoint

_WORDS = ("", "\0", "a" * 5000, *"x a:0 ^a ä .. /etc/passwd unknown images %s <b> serving_default".split())
_SMALL = (0, 1, -1, 2, 3, 7, 255, 256)
_NUMBERS = (*_SMALL, 2**31 - 1, -(2**31), 2**31, 2**32, 2**40, 2**62, -(2**63), 2**63 - 1, 2**64 - 1)
_REALS = (0.0, -1.0, 0.5, 1e308, -1e308, float("inf"), float("nan"), 5e-324)


def change_message(message: Message, chance: random.Random) -> None:
    """Change one thing somewhere in a message, by way of its JSON form."""
    document = json_format.MessageToDict(message)
    for _ in range(20):  # not every JSON value is a message
        changed = change_json(copy.deepcopy(document), chance)
        with contextlib.suppress(json_format.ParseError, TypeError, ValueError):
            message.CopyFrom(json_format.ParseDict(changed, type(message)()))
            return


# ------------------------------------------------------------------------------------------------------- files

_OBJECTS = b"_CHECKPOINTABLE_OBJECT_GRAPH"


def spoiled(content: bytes, chance: random.Random) -> bytes:
    """Bytes with some changed, left out, or twice."""
    content = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(content) + 1)
        length = chance.choice((1, 1, 4, 60))
        kind = chance.randrange(4)
        if kind == 0:
            content[position : position + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del content[position : position + length]
        elif kind == 2:
            content[position:position] = content[position : position + length] or b"\xff"
        else:
            content[position : position + length] = bytes(chance.randrange(256) for _ in range(length))
    return bytes(content)


def change_program(folder: pathlib.Path, chance: random.Random) -> None:
    """The program of a SavedModel: some fields, or, seldom, some bytes."""
    path = folder / "saved_model.pb"
    if chance.random() < 0.05:
        path.write_bytes(spoiled(path.read_bytes(), chance))
        return
    program = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        parts = [program]
        for graph in program.meta_graphs[:1]:
            parts += [graph, graph.graph_def.library, graph.object_graph_def, graph.graph_def]
        change_message(chance.choice(parts), chance)
    path.write_bytes(program.SerializeToString())


def change_variables(folder: pathlib.Path, chance: random.Random) -> None:
    """The index of a SavedModel's variables, with checksums that fit; or bytes of it, or of another file there."""
    index = folder / "variables" / "variables.index"
    if chance.random() < 0.3:
        files = [folder / "fingerprint.pb", *(folder / "variables").iterdir()]
        path = chance.choice(sorted(path for path in files if path.exists()))
        path.write_bytes(spoiled(path.read_bytes(), chance))
        return
    _change_table(index, chance)


def _change_table(index: pathlib.Path, chance: random.Random) -> None:
    pairs = list(variable_index._pairs(index.read_bytes()))
    position = chance.randrange(len(pairs))
    key, value = pairs[position]
    kind = tensor_bundle_pb2.BundleEntryProto if key else tensor_bundle_pb2.BundleHeaderProto
    message = kind.FromString(value)
    for _ in range(chance.randint(1, 2)):
        change_message(message, chance)
    pairs[position] = (key, message.SerializeToString())
    if chance.random() < 0.2:
        chance.shuffle(pairs)
    if chance.random() < 0.2:
        pairs.append(chance.choice(pairs))
    entries = [tables.entry(*pair) for pair in pairs]
    changes = {"packing": 1} if chance.random() < 0.02 else {}
    if chance.random() < 0.1:
        changes["size"] = chance.choice([number for number in _NUMBERS if number >= 0])
    index.write_bytes(tables.Table(entries=entries, last=b"\x7f", **changes).content())


def change_workdir(folder: pathlib.Path, chance: random.Random) -> None:
    """The newest checkpoint of a workdir, most often with checksums that fit, or its configurations."""
    (step,) = (folder / "checkpoints").glob("step-*")
    kind = chance.random()
    if kind < 0.3:
        _change_table(step / "variables.index", chance)
    elif kind < 0.6:
        change_objects(step / "variables", lambda graph: [change_message(graph, chance) for _ in range(3)])
    elif kind < 0.8:
        change_report(chance.choice((step / "state.json", step / "state.json", folder / "training.json")), chance)
    else:
        path = chance.choice([path for path in sorted(folder.rglob("*")) if path.is_file()])
        path.write_bytes(spoiled(path.read_bytes(), chance))
    if chance.random() < 0.9:
        (step / "SHA256SUMS").write_text(checkpoint._checksums(step))


def change_objects(prefix: pathlib.Path, change) -> None:
    """Call `change` on the graph of objects of a checkpoint, and write it, with checksums that fit, behind the data."""
    index, data = prefix.with_suffix(".index"), prefix.with_suffix(".data-00000-of-00001")
    pairs = dict(variable_index._pairs(index.read_bytes()))
    entry = tensor_bundle_pb2.BundleEntryProto.FromString(pairs[_OBJECTS])
    stored = data.read_bytes()[entry.offset :][: entry.size]
    start = next(position for position, byte in enumerate(stored) if byte < 128) + 5
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(stored[start:])
    change(graph)
    text = graph.SerializeToString()
    length = struct.pack("<I", len(text))
    sums = struct.pack("<I", variable_index._checksum(length))
    entry.crc32c = variable_index._checksum(length + sums + text)
    entry.offset, entry.size = data.stat().st_size, len(tables.number(len(text)) + sums + text)
    data.write_bytes(data.read_bytes() + tables.number(len(text)) + sums + text)
    pairs[_OBJECTS] = entry.SerializeToString()
    entries = [tables.entry(*pair) for pair in pairs.items()]
    index.write_bytes(tables.Table(entries=entries, last=b"\x7f").content())


def change_prepared(folder: pathlib.Path, chance: random.Random) -> None:
    """A prepared set of TFDS: values of its descriptions, examples, or bytes of any file."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    kind = chance.random()
    if kind < 0.5:
        change_report(chance.choice([path for path in paths if path.suffix == ".json"]), chance)
    elif kind < 0.9:
        _change_records(chance.choice([path for path in paths if "tfrecord" in path.name]), chance)
    else:
        path = chance.choice(paths)
        path.write_bytes(spoiled(path.read_bytes(), chance))


def _change_records(path: pathlib.Path, chance: random.Random) -> None:
    """Fields of an example, with checksums that fit; or examples left out, twice, or none at all."""
    examples = [
        tf.train.Example.FromString(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]
    position = chance.randrange(len(examples))
    for _ in range(chance.randint(1, 2)):
        change_message(examples[position], chance)
    examples = examples if chance.random() < 0.9 else chance.choices(examples, k=chance.randrange(9))
    with tf.io.TFRecordWriter(str(path)) as records:
        for example in examples:
            records.write(example.SerializeToString())


def change_tensors(path: pathlib.Path, chance: random.Random) -> None:
    """A `.safetensors` file: values of its list, its length, or bytes of all."""
    content = path.read_bytes()
    if chance.random() < 0.2:
        path.write_bytes(spoiled(content, chance))
        return
    (size,) = struct.unpack("<Q", content[:8])
    listed = json.loads(content[8 : 8 + size])
    for _ in range(chance.randint(1, 2)):
        listed = change_json(listed, chance)
    text = json.dumps(listed).encode()
    length = chance.choice(_NUMBERS[-1:] + (2**40, len(text) - 1)) if chance.random() < 0.1 else len(text)
    path.write_bytes(struct.pack("<Q", length) + text + content[8 + size :])


def change_json(value, chance: random.Random, words=()):
    """A JSON value with one thing changed somewhere in it, also to one of the words."""
    if isinstance(value, (dict, list)) and value and chance.random() < 0.85:
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = chance.choice(keys)
        kind = chance.random()
        if kind < 0.08:
            del value[key]
        elif kind < 0.14:
            if isinstance(value, dict):
                value[chance.choice(_WORDS)] = value.pop(key)
            else:
                value.append(value[key])
        elif kind < 0.18:
            value[key] = value[chance.choice(keys)]
        else:
            value[key] = change_json(value[key], chance, words)
        return value
    near = [value + 1, -value, value * 10**400] if isinstance(value, int) else []
    near += [value + "x", value.upper(), value[:-1]] if isinstance(value, str) else []
    substitutes = [None, True, False, [], {}, [value], {"a": value}, *(words or (*_WORDS, *_NUMBERS, *_REALS))]
    return chance.choice(near or substitutes) if chance.random() < 0.4 else chance.choice(substitutes)


def change_report(path: pathlib.Path, chance: random.Random) -> None:
    """A report: some values, or, seldom, some bytes."""
    if chance.random() < 0.15:
        path.write_bytes(spoiled(path.read_bytes(), chance))
        return
    document = json.loads(path.read_bytes())
    for _ in range(chance.randint(1, 3)):
        document = change_json(document, chance)
    path.write_text(json.dumps(document))


def change_keras_file(path: pathlib.Path, chance: random.Random) -> None:
    """A `.keras` file: values of its configuration, bytes of its weights, parts of the archive, or bytes of all."""
    if chance.random() < 0.1:
        path.write_bytes(spoiled(path.read_bytes(), chance))
        return
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    kind = chance.random()
    if kind < 0.7:
        name = chance.choice(("config.json", "config.json", "metadata.json"))
        document = json.loads(parts[name])
        for _ in range(chance.randint(1, 3)):
            document = change_json(document, chance)
        parts[name] = json.dumps(document).encode()
    elif kind < 0.9:
        parts["model.weights.h5"] = spoiled(parts["model.weights.h5"], chance)
    _write_archive(path, parts, chance)


def _write_archive(path: pathlib.Path, parts: dict[str, bytes], chance: random.Random) -> None:
    names = list(parts)
    if chance.random() < 0.15:
        names.remove(chance.choice(names))
    elif chance.random() < 0.1:
        names.append(chance.choice(("../outside", "/outside", "a" * 500, *names)))
    packing = chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA))
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", packing) as archive:
        warnings.simplefilter("ignore")  # of names that stand twice
        for name in names:
            archive.writestr(name, parts.get(name, b"x"))


def change_arrays(path: pathlib.Path, chance: random.Random) -> None:
    """An `.npz` file: another array, another header before the same bytes, parts of the archive, or bytes of all."""
    if chance.random() < 0.1:
        path.write_bytes(spoiled(path.read_bytes(), chance))
        return
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(chance.randint(1, 2)):
        name = chance.choice(sorted(parts))
        try:
            parts[name] = _other_array(parts[name], chance)
        except archives.ARRAY_ERRORS:  # what NumPy does not make of such an array
            parts[name] = spoiled(parts[name], chance)
    _write_archive(path, parts, chance)


def _other_array(content: bytes, chance: random.Random) -> bytes:
    kind = chance.random()
    if kind < 0.3:
        return spoiled(content, chance)
    if kind < 0.6:
        sizes = [chance.choice((True, 1.5, None, 6, 8, *_NUMBERS)) for _ in range(chance.randint(0, 5))]
        shape = chance.choice((f"({', '.join(map(str, sizes))},)", str(sizes), "(6,)", "(6, 8, 8, 1)"))
        types = ("|u1", "<i8", "<f4", "<f8", "|b1", "<U3", "|S9", "|O", "<c8", "<M8[s]", ">i4", "|V8", "x")
        order = chance.choice((True, False, None, 1))
        header = f"{{'descr': '{chance.choice(types)}', 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
        if chance.random() < 0.2:
            header = spoiled(header, chance)
        start = content.index(b"\n") + 1
        return content[:6] + b"\1\0" + struct.pack("<H", len(header)) + header + content[start:]
    array = np.load(io.BytesIO(content), allow_pickle=False)
    changed = chance.choice(
        (
            lambda: array[:0],
            lambda: array[..., None],
            lambda: array.T,
            lambda: array.astype(chance.choice(("f8", "f2", "i8", "u8", "?", "c8", "U3"))),
            lambda: array * np.float64(chance.choice(_REALS)),
            lambda: np.full(array.shape, chance.choice(_NUMBERS)),
            lambda: np.repeat(array, chance.randint(2, 40), axis=0),
        )
    )()
    packed = io.BytesIO()
    np.save(packed, changed, allow_pickle=False)
    return packed.getvalue()


_TOKEN = re.compile(r"[A-Za-z_][\w./]*|[0-9][\w.]*|[^\w\s]")
# No large whole numbers: as many steps as asked for are what a gin file may ask for.
_VALUES = tuple("0 -1 1 3 0.5 1e400 None True () [] {} 'x' @ % = / ' ( \\".split())


def change_gin(path: pathlib.Path, names: list[str], chance: random.Random) -> None:
    """A gin file: a token for another one, a line left out, twice or elsewhere, or some bytes."""
    text = path.read_text("utf-8")
    for _ in range(chance.randint(1, 3)):
        lines = text.splitlines()
        kind, number = chance.random(), chance.randrange(len(lines) or 1)
        tokens = list(_TOKEN.finditer(text))
        if kind < 0.7 and tokens:
            token = chance.choice(tokens)
            new = chance.choice((*_VALUES, *names, chance.choice(tokens).group(), token.group() + "x"))
            text = text[: token.start()] + new + text[token.end() :]
            continue
        if kind < 0.8 and lines:
            del lines[number]
        elif kind < 0.9 and lines:
            lines.insert(chance.randrange(len(lines)), lines[number])
        else:
            text = spoiled(text.encode(errors="surrogateescape"), chance).decode(errors="surrogateescape")
            continue
        text = "\n".join(lines) + "\n"
    path.write_bytes(text.encode(errors="surrogateescape"))
