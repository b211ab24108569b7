"""SavedModels that save or read by a way round: what each names, a loader runs, hands out, or takes for something else.

Each was once let through, and loaded it wrote a file of its choice, or gave out what stood in one.
"""

import pathlib

import numpy as np
import tensorflow as tf
from hostile.programs import changed, new_function, new_node, text_node
from tensorflow.core.framework import types_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2

_SAVES, _READS = "'SaveV2', which only the model's own saver may use", "not one of its assets"


def _value(nodes, name: str, value) -> None:
    node = new_node(nodes, name, "Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype


def _saver(nodes, output: str = "") -> None:
    for name, value in (("where", "/tmp/canary"), ("names", ["x"]), ("slices", [""]), ("numbers", np.float32(1))):
        _value(nodes, name, value)
    node = new_node(nodes, "canary", "SaveV2", [f"{name}{output}" for name in ("where", "names", "slices", "numbers")])
    node.attr["dtypes"].list.type.append(types_pb2.DT_FLOAT)


def _saving_function(graph, name: str = "aside"):
    function = new_function(graph, name)
    _saver(function.node_def, ":output:0")
    return function


@changed
def restored_by_saving(graph) -> None:
    _saver(graph.graph_def.node)
    graph.saver_def.restore_op_name = "canary"


@changed
def table_initializer_that_saves(graph) -> None:
    _saver(graph.graph_def.node)
    graph.collection_def["table_initializer"].node_list.value.append("canary")


@changed
def local_variable_that_saves(graph) -> None:
    _saver(graph.graph_def.node)
    variable = variable_pb2.VariableDef(variable_name="numbers:0", initializer_name="canary", snapshot_name="numbers:0")
    graph.collection_def["local_variables"].bytes_list.value.append(variable.SerializeToString())


@changed
def sparse_answer_that_saves(graph) -> None:
    _saver(graph.graph_def.node)
    new_node(graph.graph_def.node, "after", "Identity", ["numbers", "^canary"])
    graph.signature_def["serving_default"].outputs["more"].coo_sparse.values_tensor_name = "after:0"


@changed
def answer_of_parts_that_saves(graph) -> None:
    _saver(graph.graph_def.node)
    new_node(graph.graph_def.node, "after", "Identity", ["numbers", "^canary"])
    graph.signature_def["serving_default"].outputs["more"].composite_tensor.components.add(name="after:0")


@changed
def object_that_saves(graph) -> None:
    _saving_function(graph)
    graph.object_graph_def.nodes.add().bare_concrete_function.concrete_function_name = "aside"


@changed
def method_that_saves(graph) -> None:
    _saving_function(graph)
    graph.object_graph_def.nodes.add().function.concrete_functions.append("aside")


@changed
def gradient_that_saves(graph) -> None:
    _saving_function(graph)
    graph.graph_def.library.registered_gradients.add(gradient_func="aside", registered_op_type="CustomGradient-1")


@changed
def stand_in_that_saves(graph) -> None:
    _saving_function(graph).attr["api_implements"].s = b"lstm"


@changed
def function_named_as_what_is_known(graph) -> None:
    function = new_function(graph, "Identity")
    text_node(function.node_def, "secret", "/etc/passwd")


@changed
def object_of_a_named_file(graph) -> None:
    """Nothing in the graph calls it, but whoever holds the object does."""
    function = new_function(graph, "table")
    function.signature.input_arg.add(name="path", type=types_pb2.DT_STRING)
    new_node(function.node_def, "canary", "InitializeTableFromTextFileV2", ["path", "path"])
    graph.object_graph_def.nodes.add().bare_concrete_function.concrete_function_name = "table"


@changed
def constant_of_an_object(graph) -> None:
    tensor = new_node(graph.graph_def.node, "bomb", "NoOp").attr["value"].tensor
    tensor.dtype = types_pb2.DT_FLOAT
    tensor.tensor_shape.dim.add(size=2**40)
    graph.object_graph_def.nodes.add().constant.operation = "bomb"


def _table(directory: pathlib.Path, graph, path: str, asset: str) -> None:
    """A table of the file that `path` names, and an asset whose name goes to `asset`."""
    (directory / "assets").mkdir(exist_ok=True)
    (directory / "assets" / "words.txt").write_text("a\n")
    graph.asset_file_def.add(filename="words.txt").tensor_info.name = asset
    new_node(graph.graph_def.node, "canary", "InitializeTableFromTextFileV2", [path, path])


def table_of_the_saver_s_file(directory: pathlib.Path) -> None:
    """Only while it restores does a loader know where the variables lie."""
    changed(lambda graph: _table(directory, graph, graph.saver_def.filename_tensor_name, "other:0"))(directory)


def table_while_restoring(directory: pathlib.Path) -> None:
    def change(graph) -> None:
        text_node(graph.graph_def.node, "words", "/etc/passwd")
        _table(directory, graph, "words", "words:0")
        graph.saver_def.restore_op_name = "canary"

    changed(change)(directory)


def table_of_an_asset_nobody_looks_for(directory: pathlib.Path) -> None:
    def change(graph) -> None:
        text_node(graph.graph_def.node, "words", "/etc/passwd")
        _table(directory, graph, "words", "other:0")
        old = meta_graph_pb2.AssetFileDef(filename="words.txt")
        old.tensor_info.name = "words:0"
        graph.collection_def["saved_model_assets"].any_list.value.add().Pack(old)

    changed(change)(directory)


def table_of_an_asset_s_second_output(directory: pathlib.Path) -> None:
    def change(graph) -> None:
        text_node(graph.graph_def.node, "secret", "/etc/passwd")
        new_node(graph.graph_def.node, "two", "IdentityN", ["secret", "secret"])
        _table(directory, graph, "two:1", "two:0")

    changed(change)(directory)


# What makes it -> a part of the line it is refused with.
CASES = {
    restored_by_saving: _SAVES,
    table_initializer_that_saves: _SAVES,
    local_variable_that_saves: _SAVES,
    sparse_answer_that_saves: _SAVES,
    answer_of_parts_that_saves: _SAVES,
    object_that_saves: _SAVES,
    method_that_saves: _SAVES,
    gradient_that_saves: _SAVES,
    stand_in_that_saves: _SAVES,
    function_named_as_what_is_known: "has the name of the operation 'Identity'",
    object_of_a_named_file: _READS,
    constant_of_an_object: "too many bytes",
    table_of_the_saver_s_file: _READS,
    table_while_restoring: _READS,
    table_of_an_asset_nobody_looks_for: _READS,
    table_of_an_asset_s_second_output: _READS,
}
