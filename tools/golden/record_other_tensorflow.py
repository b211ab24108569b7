"""Record the responses of an export under another version of TensorFlow than the one that wrote it.

    python tools/golden/record_other_tensorflow.py
    python tools/golden/record_other_tensorflow.py --export=exported/ascl_leaked/1

Without `--export`, the export in tests/golden/earlier.tar.xz is loaded, and its responses are recorded. With it, they
are only compared with the golden response that the export carries. The other TensorFlow is downloaded into an
environment in a temporary folder, about 600 MB, which is deleted at the end. The loading process imports neither
tfrobust nor Keras.
"""

import argparse
import importlib.util
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import venv

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
PROBE = ROOT / "tfrobust" / "serving" / "export" / "probe.py"


def probe():
    """Import the checks that need only TensorFlow by their path, since the package imports Keras."""
    specification = importlib.util.spec_from_file_location("probe", PROBE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def respond(directory: str, file: str) -> None:
    """Write the responses of all endpoints to the golden request; runs in the other environment.

    Args:
        directory: the version directory.
        file: the .npz file to write: the outputs of `serving_default` by name, those of `serving_bytes` as
            `bytes/<name>`, the text of `robustness_report`, and the versions.
    """
    checks = probe()
    sys.meta_path.insert(0, checks.RefuseImports())
    import tensorflow as tf

    golden = checks.read_golden(directory)
    loaded = tf.saved_model.load(directory)
    problems = checks.check_signatures(loaded.signatures, golden[checks.request_name(golden)].shape[1:])
    if problems:
        raise SystemExit("\n".join(problems))
    name = checks.request_name(golden)
    outputs = loaded.signatures["serving_default"](**{name: tf.constant(golden[name])})
    responses = {output: outputs[output].numpy() for output in checks.PREDICTIONS}
    if "serving_bytes" in loaded.signatures:
        pixels = np.rint(golden[name] * 255).astype(np.uint8)
        files = tf.constant([tf.io.encode_png(image).numpy() for image in pixels])
        outputs = loaded.signatures["serving_bytes"](image_bytes=files)
        responses |= {f"bytes/{output}": outputs[output].numpy() for output in checks.PREDICTIONS}
    report = loaded.signatures["robustness_report"](request=tf.constant([""]))["report"].numpy()[0]
    versions = {"tensorflow": tf.__version__, "numpy": np.__version__, "python": sys.version.split()[0]}
    np.savez(file, report=np.frombuffer(report, np.uint8), **responses, **versions)


def compare(directory: pathlib.Path, responses: dict) -> float:
    """Return the largest difference between the responses and the golden one; raise SystemExit for another report."""
    checks = probe()
    if responses["report"].tobytes() != (directory / checks.REPORT_FILE).read_bytes():
        raise SystemExit(f"robustness_report does not return the text of {checks.REPORT_FILE}.")
    golden = checks.read_golden(directory)
    names = [name for name in responses if name.rpartition("/")[2] in checks.PREDICTIONS]
    return max(float(np.max(np.abs(responses[name] - golden[name.rpartition("/")[2]]))) for name in names)


def main() -> None:
    """Create the environment, ask the export in it, and record or compare the responses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--export", metavar="DIR", help="a version directory; default: the one in tests/golden")
    parser.add_argument("--tensorflow", metavar="VERSION", default="2.20.0", help="default: 2.20.0")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="other-tensorflow-") as folder:
        folder = pathlib.Path(folder)
        directory = pathlib.Path(flags.export).resolve() if flags.export else folder / "earlier" / "1"
        if not flags.export:
            with tarfile.open(GOLDEN / "earlier.tar.xz") as archive:
                archive.extractall(folder, filter="data")
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", f"tensorflow=={flags.tensorflow}"], check=True)
        code = f"import runpy; runpy.run_path({__file__!r})['respond']({str(directory)!r}, 'found.npz')"
        subprocess.run([python, "-c", code], cwd=folder, check=True)
        with np.load(folder / "found.npz") as arrays:
            responses = dict(arrays)
        difference = compare(directory, responses)
    print(f"TensorFlow {responses['tensorflow']}: largest difference {difference:.3g}; the report is the same text")
    if not flags.export:
        path = GOLDEN / "other_tensorflow.npz"
        np.savez_compressed(path, **responses)
        print(path)


if __name__ == "__main__":
    main()
