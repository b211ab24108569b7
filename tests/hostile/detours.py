"""SavedModels that save or read by a way round: what each names, a loader runs, hands out, or takes for something else.

Each was once let through, and loaded it wrote a file of its choice, or gave out what stood in one.
"""

import pathlib

import numpy as np
import stored
from hostile import programs
from tensorflow.core.framework import types_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2

CASES = programs.Cases()
_READS = "not one of its assets"

# ------------------------------------------------------------------------------------------------------ they save


def _saver(nodes, output: str = "") -> None:
    for name, value in (("where", "/tmp/canary"), ("names", ["x"]), ("slices", [""]), ("numbers", np.float32(1))):
        programs.new_constant(nodes, name, value)
    node = programs.new_node(
        nodes, "canary", "SaveV2", [f"{name}{output}" for name in ("where", "names", "slices", "numbers")]
    )
    node.attr["dtypes"].list.type.append(types_pb2.DT_FLOAT)


def _saving(name_it):
    """A saver in the main graph, and what makes a loader run it; "after" is what an answer may wait for."""

    @programs.changed
    def change(graph) -> None:
        _saver(graph.graph_def.node)
        programs.new_node(graph.graph_def.node, "after", "Identity", ["numbers", "^canary"])
        name_it(graph)

    return change


def _local_variable(graph) -> None:
    variable = variable_pb2.VariableDef(variable_name="numbers:0", initializer_name="canary", snapshot_name="numbers:0")
    graph.collection_def["local_variables"].bytes_list.value.append(variable.SerializeToString())


def _answer(graph):
    return graph.signature_def["serving_default"].outputs["more"]


def _saving_function(name_it):
    """A function `aside` that saves, and what names it."""

    @programs.changed
    def change(graph) -> None:
        function = programs.new_function(graph, "aside")
        _saver(function.node_def, ":output:0")
        name_it(graph, function)

    return change


def _object(graph):
    return graph.object_graph_def.nodes.add()


# ------------------------------------------------------------------------------------------------------ they read


@CASES.graph(_READS)
def object_of_a_named_file(graph) -> None:
    """Nothing in the graph calls it, but whoever holds the object does."""
    function = programs.new_function(graph, "table")
    function.signature.input_arg.add(name="path", type=types_pb2.DT_STRING)
    programs.new_table(function.node_def, "path")
    _object(graph).bare_concrete_function.concrete_function_name = "table"


@CASES.graph("too many bytes")
def constant_of_an_object(graph) -> None:
    programs.fill(programs.new_node(graph.graph_def.node, "bomb", "NoOp").attr["value"].tensor)
    _object(graph).constant.operation = "bomb"


def _table(path: str, asset: str, more=lambda graph: None):
    """A table of the file that `path` names, and an asset whose name goes to `asset`, beside a secret file's."""

    def build(directory: pathlib.Path) -> None:
        def change(graph) -> None:
            nodes = graph.graph_def.node
            programs.new_constant(nodes, "secret", "/etc/passwd")
            programs.new_asset(directory, graph, asset)
            programs.new_table(nodes, path or graph.saver_def.filename_tensor_name)
            more(graph)

        programs.changed(change)(directory)

    return build


def _older_asset(graph) -> None:
    old = meta_graph_pb2.AssetFileDef(filename="words.txt")
    old.tensor_info.name = "secret:0"
    graph.collection_def["saved_model_assets"].any_list.value.add().Pack(old)


# ----------------------------------- they hide it behind names: empty ones, the same twice, marks of inputs and outputs


def _writes(nodes, output: str = "") -> None:
    programs.new_constant(nodes, "canary_path", "/tmp/canary")
    programs.new_node(nodes, "canary", "WriteFile", [f"canary_path{output}", f"canary_path{output}"])


@CASES.graph("a function has no name")
def function_without_a_name_beside_a_writing_graph(graph) -> None:
    _writes(graph.graph_def.node)
    programs.run_by_the_graph(graph)
    programs.new_function(graph, "")


@CASES.graph("a function has no name")
def model_of_tensorflow_1(graph) -> None:
    """The same in the older format, whose main graph is all there is."""
    function_without_a_name_beside_a_writing_graph(graph)
    graph.ClearField("object_graph_def")


@CASES.graph("a function has no name")
def served_function_that_writes_and_one_without_a_name(graph) -> None:
    _writes(programs.served_function(graph).node_def, ":output:0")
    programs.new_function(graph, "")


@CASES.graph("'aside' occurs twice")
def function_twice_and_the_first_writes(graph) -> None:
    _writes(programs.new_function(graph, "aside").node_def, ":output:0")
    programs.new_function(graph, "aside")
    programs.new_call(programs.served_function(graph).node_def, "call", "aside")


@CASES.graph("'twice' occurs twice")
def argument_twice(graph) -> None:
    function = programs.new_function(graph, "aside")
    for _ in range(2):
        function.signature.input_arg.add(name="twice")


@CASES.graph("has ':' or '^' in its name")
def node_named_as_an_output(graph) -> None:
    nodes = programs.served_function(graph).node_def
    programs.new_constant(nodes, "words", "a")
    programs.new_constant(nodes, "words:output", "/etc/passwd")


CASES |= stored.cases(__file__, "detours", globals())
