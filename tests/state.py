"""Global state of the process that tests, or the code under test, switch: put back after each test."""

import sys


def put_back() -> None:
    """Restore Keras's precision, TensorFlow's choice of operations, and an empty gin configuration.

    A package that no test has imported is not imported for it.
    """
    if "keras" in sys.modules:
        sys.modules["keras"].config.set_dtype_policy("float32")
    if "gin" in sys.modules:
        sys.modules["gin"].clear_config()
    # The public module can only switch determinism on.
    if config := sys.modules.get("tensorflow.python.framework.config"):
        config.disable_op_determinism()
