"""The graph of a SavedModel: every node of it and of its functions, whoever reaches them, and which files they name."""

from __future__ import annotations

import collections
import functools
import math
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import node_def_pb2, tensor_pb2, tensor_shape_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tfrobust.ops.allowed_operations import ALLOWED, FILE_INPUTS, SAVERS
from tfrobust.ops.program_files import finding, shown
from tfrobust.structs import Finding

_ASSETS = "saved_model_assets"
_MOST_NODES = 2_000_000
_LARGEST_CONSTANTS = 2**31  # bytes in all; a few bytes in a file can stand for any number of equal numbers
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# What hands a file's name on; and what only looks at a variable.
_PASSING = ("Identity", "ReadVariableOp")
# What a loader can put a file's name in the place of: a node of one output.
_FED = ("Const", "Placeholder", "PlaceholderWithDefault")
_READING = ("ReadVariableOp", "VarIsInitializedOp", "DisableCopyOnRead")
_GRAPH = ""  # where a node stands that is in no function
_OWN_FILES = "A model reads files of its own assets/ only; export it again without that."
_OTHERWISE = "A model takes numbers and gives numbers; export it again without that operation."


def findings(graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """What in one graph is not what a model needs, the functions of its library included."""
    program = Program(graph)
    found = _shape_findings(program)
    # The further questions take names to be unique, and calls to end.
    return found or [*_operation_findings(program), *_file_findings(program), *_constant_findings(program)]


class Program:
    """A graph by its names.

    Args:
        graph: a meta graph.

    Attributes:
        places: name of a function -> its nodes; those in no function under "".
        callers: name of a function -> (place, node) that name it in an attribute.
    """

    def __init__(self, graph: meta_graph_pb2.MetaGraphDef):
        self.graph = graph
        self.functions = {each.signature.name: each for each in graph.graph_def.library.function}
        self.places = {_GRAPH: graph.graph_def.node} | {n: f.node_def for n, f in self.functions.items()}
        self.callers: dict[str, list] = collections.defaultdict(list)
        for place, nodes in self.places.items():
            for node in nodes:
                for name in named_functions(node, self.functions):
                    self.callers[name].append((place, node))

    @functools.cached_property
    def nodes(self) -> dict[tuple[str, str], node_def_pb2.NodeDef]:
        """(place, name) -> node."""
        return {(place, node.name): node for place, nodes in self.places.items() for node in nodes}

    @functools.cached_property
    def arguments(self) -> dict[str, list[str]]:
        """Name of a function -> names of its arguments."""
        return {name: [each.name for each in f.signature.input_arg] for name, f in self.functions.items()}

    @functools.cached_property
    def exposed(self) -> set[str]:
        """Functions that a loader hands out, that are gradients, or that TensorFlow may put in another's place."""
        objects, library = self.graph.object_graph_def, self.graph.graph_def.library
        names = {*objects.concrete_functions, *(each.gradient_func for each in library.gradient)}
        names |= {each.gradient_func for each in library.registered_gradients}
        names |= {name for name, function in self.functions.items() if "api_implements" in function.attr}
        for node in objects.nodes:
            bare, captured = node.bare_concrete_function, node.captured_tensor
            names |= {*node.function.concrete_functions, bare.concrete_function_name, captured.concrete_function}
        return names - {""}

    @functools.cached_property
    def served(self) -> set[tuple[str, str]]:
        """What loading or serving reaches: nodes of the graph as ("", name), functions as (name, "").

        Of TensorFlow 1, whatever a collection names may be run to load it; but for its savers, whose business is to
        save.
        """
        tensors = self._of_signatures(lambda name: True)
        for key, collection in self.graph.collection_def.items():
            tensors += collection.node_list.value
            for packed in collection.bytes_list.value if key != "savers" else ():
                tensors += _of_variable(packed)
        return self._reached(tensors, self.exposed)

    @functools.cached_property
    def restoring(self) -> set[tuple[str, str]]:
        """As `served`, of what a loader runs to restore the variables."""
        return self._reached([self.graph.saver_def.restore_op_name], ())

    @functools.cached_property
    def answering(self) -> set[tuple[str, str]]:
        """What an answer reaches: as `served`, but for what runs once, when a model is loaded.

        Only then does a server put the names of the assets where the graph has something else.
        """
        return self._reached(self._of_signatures(lambda name: not name.startswith("__saved_model_")), ())

    def _of_signatures(self, chosen: Callable[[str], bool]) -> list[str]:
        signatures = [value for name, value in self.graph.signature_def.items() if chosen(name)]
        tensors = [tensor for each in signatures for tensor in (*each.outputs.values(), *each.inputs.values())]
        return [name for tensor in tensors for name in _of_tensor(tensor)]

    def _reached(self, tensors: Iterable[str], functions: Iterable[str]) -> set[tuple[str, str]]:
        names = filter(None, map(node_of, tensors))
        waiting = [*((_GRAPH, name) for name in names), *((name, "") for name in functions)]
        reached = set(waiting)
        while waiting:
            place, name = waiting.pop()
            nodes = self.places.get(place, ()) if not name else filter(None, [self.nodes.get((place, name))])
            for node in nodes:
                inputs = [(place, node_of(each)) for each in node.input] if name else []
                for other in (*inputs, *((each, "") for each in named_functions(node, self.functions))):
                    if other not in reached:
                        reached.add(other)
                        waiting.append(other)
        return reached


def _key(place: str, node: node_def_pb2.NodeDef) -> tuple[str, str]:
    """A node as `Program.served` knows it: by its function, where it is in one."""
    return (place, "") if place else (_GRAPH, node.name)


def _of_tensor(tensor: meta_graph_pb2.TensorInfo) -> list[str]:
    """The names of a signature's tensor, of one that is sparse or of several parts too."""
    sparse, parts = tensor.coo_sparse, tensor.composite_tensor.components
    names = [tensor.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name]
    return [*names, *(name for part in parts for name in _of_tensor(part))]


def _of_variable(packed: bytes) -> list[str]:
    """The names in what a collection holds of a variable of TensorFlow 1; [] where it is something else."""
    try:
        variable = variable_pb2.VariableDef.FromString(packed)
    except DecodeError:
        return []
    return [variable.variable_name, variable.initializer_name, variable.snapshot_name, variable.initial_value_name]


def assets(graph: meta_graph_pb2.MetaGraphDef) -> list[meta_graph_pb2.AssetFileDef]:
    """The asset files of a graph: where TensorFlow 2 lists them, or else, as loaders do, where TensorFlow 1 did."""
    found = list(graph.asset_file_def)
    if not found and _ASSETS in graph.collection_def:
        for packed in graph.collection_def[_ASSETS].any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            if packed.Unpack(asset):
                found.append(asset)
    return found


def node_of(tensor: str) -> str:
    """The node, or argument, that a tensor's name begins with: "^a", "a:0" and "a:output:0" are all of "a"."""
    return tensor.lstrip("^").split(":")[0]


def named_functions(node: node_def_pb2.NodeDef, known: Iterable[str]) -> Iterator[str]:
    """The functions that a node names: by its operation, by an attribute, or by an attribute of such a function."""
    if node.op in known:
        yield node.op
    waiting = list(node.attr.values())
    while waiting:
        value = waiting.pop()
        for function in (*([value.func] if value.HasField("func") else ()), *value.list.func):
            yield function.name
            waiting += function.attr.values()


def _shape_findings(program: Program) -> list[Finding]:
    """A graph too large, names that stand twice, functions that are not there or call themselves."""
    library = program.graph.graph_def.library.function
    count = len(program.graph.graph_def.node) + sum(len(function.node_def) for function in library)
    if count > _MOST_NODES:
        return [finding(f"its graph has {count} nodes, more than {_MOST_NODES}", "Export a smaller model.")]
    names = [function.signature.name for function in library]
    if len(set(names)) < len(names) or sum(map(len, program.places.values())) != len(program.nodes):
        return [finding("a name stands twice in its graph", "Export the model again.")]
    missing = next((name for name in program.callers if name not in program.functions), None)
    if missing is not None:
        evidence = f"{_where(*program.callers[missing][0])} names the function {shown(missing)}, which is not there"
        return [finding(evidence, "Export the model again.")]
    hidden = next((n for n in names if n in ALLOWED | SAVERS or n in FILE_INPUTS or hasattr(tf.raw_ops, n)), None)
    if hidden is not None:
        return [finding(f"a function has the name of the operation {shown(hidden)}", "Export the model again.")]
    circle = _circle(program)
    if circle is not None:
        return [finding(f"the function {shown(circle)} calls itself", "Export it with a loop instead.")]
    return []


def _circle(program: Program) -> str | None:
    """A function from which calls lead back to itself; None where there is none."""
    left = {name: {p for p, _ in program.callers[name]} - {_GRAPH} for name in program.functions}
    calls = collections.defaultdict(set)
    for name, places in left.items():
        for place in places:
            calls[place].add(name)
    free = [name for name, places in left.items() if not places]
    while free:
        caller = free.pop()
        for name in calls[caller]:
            left[name].discard(caller)
            if not left[name]:
                free.append(name)
    return next((name for name, places in left.items() if places), None)


def _operation_findings(program: Program) -> list[Finding]:
    """One per operation that is not in the list, with where it stands first."""
    faults: dict[str, list[str]] = {}
    for place, nodes in program.places.items():
        for node in nodes:
            if node.op in ALLOWED or node.op in FILE_INPUTS.keys() - SAVERS or node.op in program.functions:
                continue
            # A loader restores; whatever else the saver does, it would do to files.
            reached = program.served if node.op in FILE_INPUTS else program.served | program.restoring
            if node.op in SAVERS and _key(place, node) not in reached:
                continue
            faults.setdefault(node.op, []).append(_where(place, node))
    return [
        finding(
            f"{places[0]} is the operation {shown(name)}"
            + (
                ", which only the model's own saver may use" if name in SAVERS else ", which is not in the allowed list"
            ),
            _OTHERWISE,
        )
        for name, places in sorted(faults.items())
    ]


def _file_findings(program: Program) -> list[Finding]:
    """Operations that read a file whose name is not one of the model's own."""
    graph = program.graph
    own = {True: [graph.saver_def.filename_tensor_name], False: [each.tensor_info.name for each in assets(graph)]}
    own = {saver: {(_GRAPH, node_of(name)) for name in names} for saver, names in own.items()}
    found = []
    for place, nodes in program.places.items():
        for node in nodes:
            position, saver = FILE_INPUTS.get(node.op), node.op in SAVERS
            if position is None:
                continue
            known = position < len(node.input) and _is_own(program, own[saver], place, node.input[position])
            # Nor does a loader know the assets while it restores.
            reached = program.answering if saver else program.answering | program.restoring
            if not known or _key(place, node) in reached:
                evidence = f"{_where(place, node)} ({node.op}) reads a file that is not one of its assets"
                found.append(finding(evidence, _OWN_FILES))
    return found[:1]


def _is_own(program: Program, own: set, place: str, tensor: str) -> bool:
    """Whether a file's name can only come from the nodes in `own`, or from an asset that a function holds."""
    waiting, seen = [(place, node_of(tensor))], set()
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        place, name = source
        if source in own and source in program.nodes and program.nodes[source].op in _FED:
            continue
        if name in program.arguments.get(place, ()):
            given = _given(program, place, program.arguments[place].index(name))
            if given is None:
                return False
            waiting += given
            continue
        node = program.nodes.get(source)
        if node is None or node.op not in _PASSING or not node.input:
            return False
        given = [(place, node_of(node.input[0]))]
        given = given if node.op == "Identity" else _written(program, given[0])
        if not given:
            return False
        waiting += given
    return True


def _written(program: Program, handle: tuple[str, str]) -> list[tuple[str, str]]:
    """What a variable of the graph is given; [] where that cannot be told. TensorFlow keeps names of assets in some."""
    variable = program.nodes.get(handle)
    if variable is None or variable.op != "VarHandleOp" or handle[0] != _GRAPH:
        return []
    written = []
    for place, nodes in program.places.items():
        for node in nodes:
            twin = node.op == "VarHandleOp" and node is not variable
            if twin and node.attr["shared_name"].s in (variable.attr["shared_name"].s, b""):
                return []
            if place == _GRAPH and handle[1] in map(node_of, node.input):
                if node.op == "AssignVariableOp" and len(node.input) > 1:
                    written.append((_GRAPH, node_of(node.input[1])))
                elif node.op not in _READING:
                    return []
    return written


def _given(program: Program, function: str, position: int) -> list[tuple[str, str]] | None:
    """What a function is given as one argument, wherever it is called; None where that cannot be told."""
    graph = program.graph.object_graph_def
    if function in program.exposed:
        held = graph.concrete_functions
        bound = held[function].bound_inputs if function in held else ()
        place = position - (len(program.arguments[function]) - len(bound))
        if place < 0 or not 0 <= bound[place] < len(graph.nodes) or not graph.nodes[bound[place]].HasField("asset"):
            return None
    given = []
    for place, node in program.callers[function]:
        plain = node.op in _CALLS and node.attr["f"].func.name == function
        if not plain or position >= len(node.input):
            return None
        given.append((place, node_of(node.input[position])))
    return given


def _constant_findings(program: Program) -> list[Finding]:
    """Constants that would take more memory than any model's."""
    total = 0
    for place, nodes in program.places.items():
        for node in nodes:
            for tensor in _tensors(node):
                size = _elements(tensor.tensor_shape)
                try:
                    total += size * tf.as_dtype(tensor.dtype).size
                except TypeError:
                    size = -1
                if size < 0 or total > _LARGEST_CONSTANTS:
                    what = "no known size" if size < 0 else "too many bytes"
                    evidence = f"{_where(place, node)} is a constant of {what}"
                    return [finding(evidence, "Export with weights as variables, not as constants.")]
    return []


def _tensors(node: node_def_pb2.NodeDef) -> list[tensor_pb2.TensorProto]:
    """The constants of a node; a loader makes them of whatever node it is told to."""
    if node.op == "Const" and not node.attr["value"].HasField("tensor"):
        return [tensor_pb2.TensorProto()]
    held = [value for value in node.attr.values() if value.HasField("tensor") or value.list.tensor]
    return [tensor for value in held for tensor in (value.list.tensor or [value.tensor])]


def _elements(shape: tensor_shape_pb2.TensorShapeProto) -> int:
    sizes = [dimension.size for dimension in shape.dim]
    return -1 if shape.unknown_rank or min(sizes, default=0) < 0 else math.prod(sizes)


def _where(place: str, node: node_def_pb2.NodeDef) -> str:
    return f"node {shown(node.name, 40)}" + (f" of function {shown(place, 50)}" if place else " of the graph")
