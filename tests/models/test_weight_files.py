"""Files of weights that are damaged, made up, or pickles: one line each, and nothing is executed."""

import json
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest
import stored

from tfrobust.errors import InputError
from tfrobust.models.weights import weight_files

TENSORS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a.steps": np.array(3, np.int64)}


class Payload:
    """An object whose pickle runs code when it is read."""

    ran = False

    def __reduce__(self):
        return (_run, ())


def _run():
    Payload.ran = True


def safetensors(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def header(**tensors) -> bytes:
    return json.dumps(tensors).encode()


VALID = safetensors(header(a={"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}), b"\0" * 8)
MADE_UP = stored.cases(__file__, "made_up", globals())


def read_all(path) -> dict:
    with weight_files.open_tensors(path) as tensors:
        return {name: tensor.read() for name, tensor in tensors.items()}


def refused(path, message: str = "") -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_all(path)
    assert path.name in str(caught.value) and len(str(caught.value)) <= 300 and "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_names_shapes_and_numbers_come_back(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    if suffix == ".npz":
        np.savez_compressed(path, **TENSORS)
    else:
        pytest.importorskip("safetensors.numpy").save_file(TENSORS, path)
    with weight_files.open_tensors(path) as tensors:
        assert {name: (tensor.shape, tensor.floating) for name, tensor in tensors.items()} == {
            "a.weight": ((2, 3), True),
            "a.steps": ((), False),
        }
    for name, value in read_all(path).items():
        np.testing.assert_array_equal(value, TENSORS[name])


def test_numbers_of_16_bits_of_which_8_are_exponent(tmp_path):
    pytest.importorskip("safetensors")
    path = tmp_path / "w.safetensors"
    ones = struct.pack("<2H", 0x3F80, 0xC000)
    path.write_bytes(safetensors(header(a={"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}), ones))
    np.testing.assert_array_equal(read_all(path)["a"].astype(np.float32), [1.0, -2.0])
    with weight_files.open_tensors(path) as tensors:
        assert tensors["a"].floating


@pytest.mark.parametrize("case", MADE_UP)
def test_safetensors_that_are_damaged_or_made_up(tmp_path, case):
    pytest.importorskip("safetensors")
    path = tmp_path / "w.safetensors"
    path.write_bytes(MADE_UP[case])
    refused(path, "is damaged, cut short, or no .safetensors file")


def _zip(path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def _array(shape: str, descriptor: str = "'<f4'", version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {descriptor}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text


ARCHIVES = stored.cases(__file__, "archives", globals())


@pytest.mark.parametrize("case", ARCHIVES)
def test_archives_that_are_damaged_or_made_up(tmp_path, case):
    members, message = ARCHIVES[case]
    path = tmp_path / "w.npz"
    _zip(path, **members)
    refused(path, message)
    assert not Payload.ran


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_an_archive_that_is_cut_short(tmp_path, keep):
    path = tmp_path / "w.npz"
    np.savez(path, **TENSORS)
    path.write_bytes(path.read_bytes()[:keep])
    refused(path, "damaged|truncated")


def test_an_archive_with_a_flipped_byte(tmp_path):
    path = tmp_path / "w.npz"
    np.savez(path, a=np.zeros(1000, np.float32))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(path, "damaged|truncated")


def test_a_header_that_ends_the_array_early(tmp_path):
    """Half as wide numbers, and as many: only what is left over, and the checksum, tell."""
    path = tmp_path / "weights.npz"
    np.savez(path, w=np.arange(300_000, dtype=np.float32))
    content = path.read_bytes()
    assert content.count(b"'<f4'") == 1
    path.write_bytes(content.replace(b"'<f4'", b"'<f2'"))
    refused(path, "CRC-32|longer than its array")


@pytest.mark.parametrize("suffix", weight_files.PICKLES)
def test_pickles_are_refused_with_the_line_that_converts_them(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    path.write_bytes(pickle.dumps(Payload()))
    refused(path, "is a pickle, which can run code; convert it in your own torch: python -c ")
    long = tmp_path / f"{'w' * 200}{suffix}"
    with pytest.raises(InputError) as caught:
        weight_files.require_readable(long)
    assert str(caught.value).endswith(weight_files.CONVERSION) and len(str(caught.value)) <= 300
    refused(path, rf"torch\.load\('w{suffix}','cpu'")
    assert not Payload.ran


def test_what_is_no_file_of_weights(tmp_path):
    (tmp_path / "w.txt").write_text("hello")
    (tmp_path / "folder.npz").mkdir()
    refused(tmp_path / "w.txt", "use .safetensors or .npz")
    refused(tmp_path / "folder.npz", "There is no weights file")
    refused(tmp_path / "missing.npz", "There is no weights file")
    kinds = ("w.npz", "w.safetensors", "w.PTH", "w.keras", "w.txt", "folder.npz")
    assert [weight_files.is_weights(tmp_path / name) for name in kinds] == [True, True, True, False, False, False]


def test_without_safetensors_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    (tmp_path / "w.safetensors").write_bytes(VALID)
    refused(tmp_path / "w.safetensors", r"pip install 'tfrobust\[checkpoints\]'.* as .npz")
