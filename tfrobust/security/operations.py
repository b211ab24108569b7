"""The TensorFlow operations that a SavedModel may hold; `operations.toml` lists them, and says why it is a list."""

import importlib.resources
import tomllib

_GROUPS = tomllib.loads(importlib.resources.files(__package__).joinpath("operations.toml").read_text("utf-8"))
ALLOWED = frozenset(name for names in _GROUPS.values() for name in names.split())

# Allowed only where loading and serving do not reach them: in the model's own saver, which a server never calls to
# save, and which a loader uses only to restore `variables/`.
SAVERS = frozenset({"MergeV2Checkpoints", "RestoreV2", "SaveV2", "ShardedFilename"})

# Position of the input that names a file. The name must come from the model's own `assets/` or, for the saver, from the
# caller that restores the model.
FILE_INPUTS = {"InitializeTableFromTextFile": 1, "InitializeTableFromTextFileV2": 1, "RestoreV2": 0}
