"""A folder of small whole things to spoil: a SavedModel of ours, a `.keras` file, data that fit both, a report."""

import json
import pathlib


def write(folder) -> None:
    """Write `export`, `model.keras`, `data.npz` and `robustness_report.json` into a folder that is there."""
    import keras
    import numpy as np
    from hostile import reports

    from tfrobust.serving.export import saved_model as export

    folder = pathlib.Path(folder)
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(inputs))
    hidden = keras.layers.Dropout(0.5)(keras.layers.GlobalAveragePooling2D()(hidden))
    encoder, head = keras.Model(inputs, hidden), keras.layers.Dense(3)
    head.build((None, 4))
    parts = {"encoder": encoder, "head": head, "image_shape": (8, 8, 1), "class_names": ("a", "b", "c")}
    export.write_saved_model(folder / "export", **parts)
    keras.Sequential([encoder, head]).save(folder / "model.keras")
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1)).astype(np.uint8)
    np.savez(folder / "data.npz", images=images, labels=np.arange(6) % 3)
    (folder / "robustness_report.json").write_text(json.dumps(reports.report()))


def tree(folder: pathlib.Path) -> dict:
    """Every name below a folder, with what tells whether it was changed."""
    return {path: path.lstat().st_mtime_ns for path in sorted(folder.rglob("*")) if not path.is_dir()}
