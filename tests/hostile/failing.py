"""SavedModels in which no scan finds anything, and that fail when they are loaded or asked."""

import pathlib

import tensorflow as tf
from hostile.programs import changed, new_node, read, served_function, write
from tensorflow.core.framework import types_pb2


def _constant(nodes, name: str, value) -> str:
    node = new_node(nodes, name, "Const")
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.attr["dtype"].type = node.attr["value"].tensor.dtype
    return f"{name}:output:0"


@changed
def false_assertion(graph) -> None:
    function = served_function(graph)
    nodes = function.node_def
    node = new_node(nodes, "assertion", "Assert", [_constant(nodes, "no", False), _constant(nodes, "why", "never")])
    node.attr["T"].list.type.append(types_pb2.DT_STRING)
    nodes[0].input.append("^assertion")
    function.control_ret["assertion"] = "assertion"
    function.signature.control_output.append("assertion")


@changed
def unknown_device(graph) -> None:
    for node in served_function(graph).node_def:
        node.device = "/job:worker/task:7/device:GPU:9"


@changed
def garbage_device(graph) -> None:
    for node in served_function(graph).node_def:
        node.device = "no device at all"


def _held(graph):
    """What the loader knows of the functions behind the signatures."""
    return [held for name, held in graph.object_graph_def.concrete_functions.items() if held.bound_inputs]


@changed
def too_few_bound_inputs(graph) -> None:
    for held in _held(graph):
        del held.bound_inputs[-1]


@changed
def bound_inputs_that_are_not_there(graph) -> None:
    for held in _held(graph):
        held.bound_inputs[0] = 10_000


@changed
def bound_inputs_in_another_order(graph) -> None:
    for held in _held(graph):
        turned = list(held.bound_inputs)[::-1]
        del held.bound_inputs[:]
        held.bound_inputs.extend(turned)


@changed
def no_signatures(graph) -> None:
    children = graph.object_graph_def.nodes[0].children
    kept = [child for child in children if child.local_name != "signatures"]
    del children[:]
    children.extend(kept)


@changed
def signatures_that_are_a_variable(graph) -> None:
    nodes = graph.object_graph_def.nodes
    variable = next(number for number, node in enumerate(nodes) if node.HasField("variable"))
    for child in nodes[0].children:
        if child.local_name == "signatures":
            child.node_id = variable


@changed
def signature_that_is_a_variable(graph) -> None:
    nodes = graph.object_graph_def.nodes
    variable = next(number for number, node in enumerate(nodes) if node.HasField("variable"))
    place = next(child.node_id for child in nodes[0].children if child.local_name == "signatures")
    for child in nodes[place].children:
        child.node_id = variable


@changed
def no_objects(graph) -> None:
    del graph.object_graph_def.nodes[:]


@changed
def structure_of_arguments_missing(graph) -> None:
    for held in graph.object_graph_def.concrete_functions.values():
        held.ClearField("canonicalized_input_signature")


@changed
def structure_of_outputs_missing(graph) -> None:
    for held in graph.object_graph_def.concrete_functions.values():
        held.ClearField("output_signature")


@changed
def matrix_of_no_size(graph) -> None:
    for function in graph.graph_def.library.function:
        for node in function.node_def:
            if node.op == "MatMul":
                node.attr["transpose_b"].b = True


def garbage_fingerprint(directory: pathlib.Path) -> None:
    (directory / "fingerprint.pb").write_bytes(b"\xff" * 40)


def garbage_debug_information(directory: pathlib.Path) -> None:
    (directory / "debug").mkdir()
    (directory / "debug" / "saved_model_debug_info.pb").write_bytes(b"\xff" * 40)


def no_tags_and_two_graphs(directory: pathlib.Path) -> None:
    program = read(directory)
    program.meta_graphs.add().CopyFrom(program.meta_graphs[0])
    for graph in program.meta_graphs:
        del graph.meta_info_def.tags[:]
    write(directory, program)


# What makes it -> a part of the line.
CASES = {
    false_assertion: "fails when it is asked",
    unknown_device: "fails when it is asked",
    garbage_device: "cannot load it",
    too_few_bound_inputs: "fails when it is asked",
    bound_inputs_that_are_not_there: "cannot load it",
    bound_inputs_in_another_order: "fails when it is asked",
    no_signatures: "no signature 'serving_default'",
    signatures_that_are_a_variable: "no signature 'serving_default'",
    signature_that_is_a_variable: "fails when it is asked",
    no_objects: "cannot load it",
    structure_of_arguments_missing: "cannot load it",
    structure_of_outputs_missing: "cannot load it",
    matrix_of_no_size: "cannot load it",
    garbage_fingerprint: "fingerprint.pb is damaged",
    garbage_debug_information: "debug_info.pb is damaged",
    no_tags_and_two_graphs: "cannot load it",
}
