"""SavedModels of a few thousand bytes that ask for memory or time without end."""

from hostile.programs import changed, new_call, new_function, new_node, read, served_function, write
from tensorflow.core.framework import types_pb2


def _bomb(tensor, count: int = 2**40) -> None:
    tensor.dtype = types_pb2.DT_FLOAT
    tensor.tensor_shape.dim.add(size=count)
    tensor.float_val.append(1.0)


@changed
def constant_in_the_specification_of_a_function(graph) -> None:
    node = graph.object_graph_def.nodes.add()
    node.function.function_spec.fullargspec.tuple_value.values.add().tensor_value.SetInParent()
    _bomb(node.function.function_spec.fullargspec.tuple_value.values[0].tensor_value)


@changed
def constant_in_the_signature_of_a_function(graph) -> None:
    held = next(iter(graph.object_graph_def.concrete_functions.values()))
    _bomb(held.canonicalized_input_signature.tuple_value.values.add().tensor_value)


@changed
def constant_as_a_bound(graph) -> None:
    held = next(iter(graph.object_graph_def.concrete_functions.values()))
    _bomb(held.output_signature.bounded_tensor_spec_value.minimum)


@changed
def constant_as_an_array(graph) -> None:
    node = graph.object_graph_def.nodes.add()
    _bomb(node.function.function_spec.input_signature.numpy_value)


@changed
def constant_as_a_default(graph) -> None:
    _bomb(graph.signature_def["serving_default"].defaults["images"])


@changed
def constant_in_the_attribute_of_an_attribute(graph) -> None:
    node = new_call(served_function(graph).node_def, "call", new_function(graph, "aside").signature.name)
    _bomb(node.attr["f"].func.attr["held"].list.tensor.add())


@changed
def constant_in_the_attribute_of_a_function(graph) -> None:
    _bomb(served_function(graph).attr["held"].tensor)


@changed
def constant_of_an_argument(graph) -> None:
    _bomb(served_function(graph).arg_attr[0].attr["held"].tensor)


@changed
def constant_in_a_constant(graph) -> None:
    tensor = new_node(graph.graph_def.node, "outer", "Const").attr["value"].tensor
    tensor.dtype = types_pb2.DT_VARIANT
    _bomb(tensor.variant_val.add().tensors.add())


@changed
def many_empty_strings(graph) -> None:
    tensor = new_node(graph.graph_def.node, "bomb", "Const").attr["value"].tensor
    tensor.dtype = types_pb2.DT_STRING
    tensor.tensor_shape.dim.add(size=2**27)
    tensor.string_val.append(b"")


@changed
def shares_of_the_limit_in_different_fields(graph) -> None:
    for number in range(3):
        _bomb(graph.signature_def["serving_default"].defaults[str(number)], 2**27)
    for number in range(3):
        _bomb(new_node(graph.graph_def.node, f"bomb_{number}", "Const").attr["value"].tensor, 2**27)


def _shape(*sizes: int, times: int = 1):
    @changed
    def build(graph) -> None:
        node = new_node(graph.graph_def.node, "shaped", "Placeholder")
        for size in sizes * times:
            node.attr["shape"].shape.dim.add(size=size)

    return build


@changed
def variable_of_many_elements(graph) -> None:
    node = next(node for node in graph.object_graph_def.nodes if node.HasField("variable"))
    node.variable.shape.dim.add(size=2**41)


@changed
def specification_of_many_dimensions(graph) -> None:
    node = graph.object_graph_def.nodes.add()
    shape = node.function.function_spec.fullargspec.tensor_spec_value.shape
    for _ in range(255):
        shape.dim.add(size=1)


def _functions(count: int, calls: int):
    """Each function calls the next one so many times."""

    @changed
    def build(graph) -> None:
        new_call(served_function(graph).node_def, "call", "f0")
        for number in range(count):
            nodes = new_function(graph, f"f{number}").node_def
            new_node(nodes, "nothing", "NoOp")
            for call in range(calls if number + 1 < count else 0):
                new_call(nodes, f"call_{call}", f"f{number + 1}")

    return build


@changed
def main_graph_that_calls_much(graph) -> None:
    function = new_function(graph, "busy")
    for number in range(4_000):
        new_node(function.node_def, f"n{number}", "NoOp")
    for number in range(4_000):
        new_call(graph.graph_def.node, f"c{number}", "busy")


@changed
def objects_in_a_chain(graph) -> None:
    nodes = graph.object_graph_def.nodes
    first = len(nodes)
    nodes[0].children.add(node_id=first, local_name="more")
    for number in range(20_000):
        node = nodes.add()
        node.user_object.identifier = "_generic_user_object"
        if number < 19_999:
            node.children.add(node_id=first + number + 1, local_name="more")


@changed
def many_objects(graph) -> None:
    for _ in range(200_001):
        graph.object_graph_def.nodes.add().asset.asset_file_def_index = 0


@changed
def part_that_is_not_there(graph) -> None:
    graph.object_graph_def.nodes[0].children.add(node_id=2**31 - 1, local_name="more")


def many_graphs(directory) -> None:
    program = read(directory)
    for _ in range(100):
        program.meta_graphs.add()
    write(directory, program)


# Name -> (what makes it, a part of the line it is refused with).
CASES = {
    **{
        build.__name__.replace("_", " "): (build, "too many bytes")
        for build in (
            constant_in_the_specification_of_a_function,
            constant_in_the_signature_of_a_function,
            constant_as_a_bound,
            constant_as_an_array,
            constant_as_a_default,
            constant_in_the_attribute_of_an_attribute,
            constant_in_the_attribute_of_a_function,
            constant_of_an_argument,
            constant_in_a_constant,
            many_empty_strings,
            shares_of_the_limit_in_different_fields,
        )
    },
    "shape of 300 dimensions": (_shape(1, times=300), "300 dimensions, more than 254"),
    "shape of negative size": (_shape(-2), "negative size"),
    "shape of many elements": (_shape(2**20, 2**21), "more than 2^40 elements"),
    "shape of more elements than a number holds": (_shape(2**62, 2**62, 2**62), "more than 2^40 elements"),
    "shape of many elements and none": (_shape(0, 2**62, 2**62), "more than 2^40 elements"),
    "shape of many elements and any": (_shape(-1, 2**41), "more than 2^40 elements"),
    "variable of many elements": (variable_of_many_elements, "more than 2^40 elements"),
    "specification of many dimensions": (specification_of_many_dimensions, "255 dimensions, more than 254"),
    "functions that each call the next twice": (_functions(40, 2), "more than 10000000 operations"),
    "functions that each call the next a hundred times": (_functions(5, 100), "more than 10000000 operations"),
    "a graph that calls much": (main_graph_that_calls_much, "its graph runs more than 10000000 operations"),
    "a chain of calls": (_functions(5_000, 1), "more than 200 deep"),
    "objects in a chain": (objects_in_a_chain, "objects are more than 200 deep"),
    "many objects": (many_objects, "more than 200000"),
    "a part that is not there": (part_that_is_not_there, "a part that is not there"),
    "many graphs": (many_graphs, "more than 100 graphs"),
}
