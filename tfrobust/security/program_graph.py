"""Check the graph of a SavedModel: names, operations and files of every node, including library functions."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import node_def_pb2, variable_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from tfrobust.security import program_sizes
from tfrobust.security.operations import ALLOWED, FILE_INPUTS, SAVERS
from tfrobust.security.program_files import finding, shown
from tfrobust.structs import Finding

_ASSETS = "saved_model_assets"
_MOST_NODES = 500_000
# Signatures that a loader runs once instead of offering them.
_RUN_ONCE = ("__saved_model_init_op", "__saved_model_train_op")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# Operations that pass on a file's name, and operations that only read a variable.
_PASSING = ("Identity", "ReadVariableOp")
# Operations whose output a loader can replace by a file's name: nodes with one output.
_FED = ("Const", "Placeholder", "PlaceholderWithDefault")
_READING = ("ReadVariableOp", "VarIsInitializedOp", "DisableCopyOnRead")
# The key of the nodes outside all functions, and the name that denotes all nodes of a function. Names in a file are
# strings, so no file can hold these keys.
_GRAPH = _ALL_NODES = None
_NodeKey = tuple[str | None, str | None]
# TensorFlow's markers of an output and of a control input. Inside a name they would make TensorFlow and the scan
# resolve it to different nodes.
_MARKS = (":", "^")
_OWN_FILES = "A model reads files of its own assets/ only; export it again without that."
_OTHERWISE = "A model takes numbers and gives numbers; export it again without that operation."


def findings(graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """Return the faults of one graph, including the functions of its library.

    Raises:
        RuntimeError: the scan has not seen every operation of the file.
    """
    # Each check relies on the results of the checks before it.
    faults = _name_findings(graph)
    if faults:
        return faults
    program = Program(graph)
    faults = _call_findings(program) or program_sizes.findings(graph, program.calls, _GRAPH)
    if faults:
        return faults
    faults, seen = _operation_findings(program)
    library = graph.graph_def.library.function
    written = len(graph.graph_def.node) + sum(len(function.node_def) for function in library)
    if seen != written:
        raise RuntimeError(f"The scan saw {seen} operations of {written}.")
    return [*faults, *_file_findings(program)]


class Program:
    """Graph indexed by the names of its functions and nodes.

    Args:
        graph: a meta graph.

    Attributes:
        scopes: name of a function -> its nodes; the nodes of the main graph under None.
        callers: name of a function -> (scope, node) that name it in an attribute.
        calls: scope -> counter of the functions that its nodes name.
    """

    def __init__(self, graph: meta_graph_pb2.MetaGraphDef):
        self.graph = graph
        self.functions = {function.signature.name: function for function in graph.graph_def.library.function}
        self.scopes = {_GRAPH: graph.graph_def.node} | {n: f.node_def for n, f in self.functions.items()}
        self.callers: dict[str, list] = collections.defaultdict(list)
        self.calls = {scope: collections.Counter() for scope in self.scopes}
        for scope, nodes in self.scopes.items():
            for node in nodes:
                for name in named_functions(node, self.functions):
                    self.callers[name].append((scope, node))
                    self.calls[scope][name] += 1

    @functools.cached_property
    def nodes(self) -> dict[_NodeKey, node_def_pb2.NodeDef]:
        """(scope, name) -> node."""
        return {(scope, node.name): node for scope, nodes in self.scopes.items() for node in nodes}

    @functools.cached_property
    def arguments(self) -> dict[str | None, dict[str, int]]:
        """Name of a function -> name of an argument -> its position."""
        return {
            name: {argument.name: position for position, argument in enumerate(function.signature.input_arg)}
            for name, function in self.functions.items()
        }

    @functools.cached_property
    def consumers(self) -> dict[str, list[node_def_pb2.NodeDef]]:
        """Name of a node of the main graph -> the nodes there that take one of its outputs."""
        by_source = collections.defaultdict(list)
        for node in self.scopes[_GRAPH]:
            for name in {node_of(source) for source in node.input}:
                by_source[name].append(node)
        return by_source

    @functools.cached_property
    def variables(self) -> collections.Counter[bytes]:
        """Shared name of a variable -> number of nodes that create a handle of that name."""
        nodes = (node for nodes in self.scopes.values() for node in nodes if node.op == "VarHandleOp")
        return collections.Counter(node.attr["shared_name"].s for node in nodes)

    @functools.cached_property
    def exposed_functions(self) -> set[str]:
        """Functions that a loader returns, that are gradients, or that TensorFlow may substitute for others."""
        objects, library = self.graph.object_graph_def, self.graph.graph_def.library
        names = {*objects.concrete_functions, *(gradient.gradient_func for gradient in library.gradient)}
        names |= {gradient.gradient_func for gradient in library.registered_gradients}
        names |= {name for name, function in self.functions.items() if "api_implements" in function.attr}
        for node in objects.nodes:
            bare, captured = node.bare_concrete_function, node.captured_tensor
            names |= {*node.function.concrete_functions, bare.concrete_function_name, captured.concrete_function}
        return names - {""}

    @functools.cached_property
    def served_nodes(self) -> set[_NodeKey]:
        """Nodes reached by loading or serving: nodes of the graph as (None, name), functions as (name, None).

        In TensorFlow 1, anything that a collection names may be run while loading, except savers, whose purpose is to
        save.
        """
        tensors = self._of_signatures(lambda name: True)
        for key, collection in self.graph.collection_def.items():
            tensors += collection.node_list.value
            for packed in collection.bytes_list.value if key != "savers" else ():
                tensors += _of_variable(packed)
        return self._reached_nodes(tensors, self.exposed_functions)

    @functools.cached_property
    def restoring_nodes(self) -> set[_NodeKey]:
        """Nodes reached when a loader restores the variables; keys as in `served_nodes`."""
        return self._reached_nodes([self.graph.saver_def.restore_op_name], ())

    @functools.cached_property
    def answering_nodes(self) -> set[_NodeKey]:
        """Nodes reached when the model is called; as `served_nodes`, without the signatures that run once at loading.

        Only at loading does a server replace tensors of the graph by the names of the assets.
        """
        return self._reached_nodes(self._of_signatures(lambda name: name not in _RUN_ONCE), ())

    def _of_signatures(self, chosen: Callable[[str], bool]) -> list[str]:
        signatures = [value for name, value in self.graph.signature_def.items() if chosen(name)]
        tensors = [
            tensor for signature in signatures for tensor in (*signature.outputs.values(), *signature.inputs.values())
        ]
        return [name for tensor in tensors for name in _of_tensor(tensor)]

    def _reached_nodes(self, tensors: Iterable[str], functions: Iterable[str]) -> set[_NodeKey]:
        names = filter(None, map(node_of, tensors))
        waiting = [*((_GRAPH, name) for name in names), *((name, _ALL_NODES) for name in functions)]
        reached = set(waiting)
        while waiting:
            scope, name = waiting.pop()
            is_all = name is _ALL_NODES
            nodes = self.scopes.get(scope, ()) if is_all else filter(None, [self.nodes.get((scope, name))])
            for node in nodes:
                inputs = [] if is_all else [(scope, node_of(source)) for source in node.input]
                for other in (*inputs, *((function, _ALL_NODES) for function in named_functions(node, self.functions))):
                    if other not in reached:
                        reached.add(other)
                        waiting.append(other)
        return reached


def _key(scope: str | None, node: node_def_pb2.NodeDef) -> _NodeKey:
    """Return the key of a node as in `Program.served_nodes`: its function, if it is in one."""
    return (_GRAPH, node.name) if scope is _GRAPH else (scope, _ALL_NODES)


def _of_tensor(tensor: meta_graph_pb2.TensorInfo) -> list[str]:
    """Return the names of a signature's tensor, including sparse and composite ones."""
    sparse, parts = tensor.coo_sparse, tensor.composite_tensor.components
    names = [tensor.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name]
    return [*names, *(name for part in parts for name in _of_tensor(part))]


def _of_variable(packed: bytes) -> list[str]:
    """Return the names in a collection's entry for a TensorFlow 1 variable; [] for any other entry."""
    try:
        variable = variable_pb2.VariableDef.FromString(packed)
    except DecodeError:
        return []
    return [variable.variable_name, variable.initializer_name, variable.snapshot_name, variable.initial_value_name]


def assets(graph: meta_graph_pb2.MetaGraphDef) -> list[meta_graph_pb2.AssetFileDef]:
    """Return the asset files of a graph, from TensorFlow 2's list or else, as loaders do, from TensorFlow 1's."""
    files = list(graph.asset_file_def)
    if not files and _ASSETS in graph.collection_def:
        for packed in graph.collection_def[_ASSETS].any_list.value:
            asset = meta_graph_pb2.AssetFileDef()
            if packed.Unpack(asset):
                files.append(asset)
    return files


def node_of(tensor: str) -> str:
    """Return the node or argument at the start of a tensor's name: "^a", "a:0" and "a:output:0" all belong to "a"."""
    return tensor.lstrip("^").split(":")[0]


def named_functions(node: node_def_pb2.NodeDef, functions: Iterable[str]) -> Iterator[str]:
    """Yield the functions that a node names by its operation, an attribute, or an attribute of such a function."""
    if node.op in functions:
        yield node.op
    waiting = list(node.attr.values())
    while waiting:
        value = waiting.pop()
        for function in (*([value.func] if value.HasField("func") else ()), *value.list.func):
            yield function.name
            waiting += function.attr.values()


def _name_findings(graph: meta_graph_pb2.MetaGraphDef) -> list[Finding]:
    """Reject a graph that is too large, and names that are empty, duplicate or contain markers."""
    library = graph.graph_def.library.function
    count = len(graph.graph_def.node) + sum(len(function.node_def) for function in library)
    if count > _MOST_NODES:
        return [finding(f"its graph has {count} nodes, more than {_MOST_NODES}", "Export a smaller model.")]
    fault = _name_fault("function", [function.signature.name for function in library])
    places = [(" of the graph", "node", _names(graph.graph_def.node))]
    for function in library if not fault else ():
        where = f" of function {shown(function.signature.name, 50)}"
        # An input can name an argument or a node.
        places.append((where, "node or argument", _names(function.signature.input_arg) + _names(function.node_def)))
    for where, kind, names in places:
        fault = fault or _name_fault(kind, names, _MARKS, where)
    return [finding(fault, "Export the model again.")] if fault else []


def _names(parts: Iterable) -> list[str]:
    return [part.name for part in parts]


def _name_fault(kind: str, names: list[str], marks: Iterable[str] = (), where: str = "") -> str:
    """Return the fault of names that must be distinct, or ""."""
    if "" in names:
        return f"a {kind}{where} has no name"
    if len(set(names)) < len(names):
        twice = next(name for name, times in collections.Counter(names).items() if times > 1)
        return f"the name {shown(twice, 40)} occurs twice among the names of each {kind}{where}"
    marked = next((name for name in names for mark in marks if mark in name), None)
    return "" if marked is None else f"the {kind} {shown(marked, 40)}{where} has ':' or '^' in its name"


def _call_findings(program: Program) -> list[Finding]:
    """Reject functions that do not exist, are named like an operation, or call themselves."""
    missing = next((name for name in program.callers if name not in program.functions), None)
    if missing is not None:
        evidence = f"{_where(*program.callers[missing][0])} names the function {shown(missing)}, which is not there"
        return [finding(evidence, "Export the model again.")]
    operations = ALLOWED | SAVERS | FILE_INPUTS.keys()
    hidden = next((name for name in program.functions if name in operations or hasattr(tf.raw_ops, name)), None)
    if hidden is not None:
        return [finding(f"a function has the name of the operation {shown(hidden)}", "Export the model again.")]
    circle = _circle(program)
    if circle is not None:
        return [finding(f"the function {shown(circle)} calls itself", "Export it with a loop instead.")]
    return []


def _circle(program: Program) -> str | None:
    """Return a function that calls itself, directly or indirectly; None if there is none."""
    remaining = {name: {p for p, _ in program.callers[name]} - {_GRAPH} for name in program.functions}
    free = [name for name, callers in remaining.items() if not callers]
    while free:
        caller = free.pop()
        for name in program.calls[caller]:
            remaining[name].discard(caller)
            if not remaining[name]:
                free.append(name)
    return next((name for name, callers in remaining.items() if callers), None)


def _operation_findings(program: Program) -> tuple[list[Finding], int]:
    """Return one finding per operation that is not in the list, and the number of operations checked."""
    faults: dict[str, str] = {}
    seen = 0
    loaded = program.served_nodes | program.restoring_nodes
    for scope, nodes in program.scopes.items():
        for node in nodes:
            seen += 1
            if node.op in ALLOWED or node.op in FILE_INPUTS.keys() - SAVERS or node.op in program.functions:
                continue
            # A loader restores; the saver's other operations would change files.
            reached = program.served_nodes if node.op in FILE_INPUTS else loaded
            if node.op in SAVERS and _key(scope, node) not in reached:
                continue
            faults.setdefault(node.op, _where(scope, node))
    reasons = ("is not in the allowed list", "only the model's own saver may use")
    refusals = [
        finding(f"{where} is the operation {shown(name)}, which {reasons[name in SAVERS]}", _OTHERWISE)
        for name, where in sorted(faults.items())
    ]
    return refusals, seen


def _file_findings(program: Program) -> list[Finding]:
    """Reject operations that read a file other than the model's own."""
    graph = program.graph
    own_names = {
        True: [graph.saver_def.filename_tensor_name],
        False: [asset.tensor_info.name for asset in assets(graph)],
    }
    own_names = {saver: {(_GRAPH, node_of(name)) for name in names} for saver, names in own_names.items()}
    # A loader does not know the assets while it restores either.
    reached = {True: program.answering_nodes, False: program.answering_nodes | program.restoring_nodes}
    # Names already traced to the model's own files are not traced again.
    traced: dict[bool, set[_NodeKey]] = {True: set(), False: set()}
    for scope, nodes in program.scopes.items():
        for node in nodes:
            position, saver = FILE_INPUTS.get(node.op), node.op in SAVERS
            if position is None:
                continue
            is_own = position < len(node.input) and _is_own(
                program, own_names[saver], scope, node.input[position], traced[saver]
            )
            if not is_own or _key(scope, node) in reached[saver]:
                evidence = f"{_where(scope, node)} ({node.op}) reads a file that is not one of its assets"
                return [finding(evidence, _OWN_FILES)]
    return []


def _is_own(program: Program, own_nodes: set, scope: str | None, tensor: str, seen: set[_NodeKey]) -> bool:
    """Return True if a file's name comes only from nodes in `own_nodes`, or from an asset that a function holds."""
    waiting = [(scope, node_of(tensor))]
    while waiting:
        source = waiting.pop()
        if source in seen:
            continue
        seen.add(source)
        scope, name = source
        if source in own_nodes and source in program.nodes and program.nodes[source].op in _FED:
            continue
        if name in program.arguments.get(scope, ()):
            sources = _argument_sources(program, scope, program.arguments[scope][name])
            if sources is None:
                return False
            waiting += sources
            continue
        node = program.nodes.get(source)
        if node is None or node.op not in _PASSING or not node.input:
            return False
        sources = [(scope, node_of(node.input[0]))]
        sources = sources if node.op == "Identity" else _assigned_sources(program, sources[0])
        if not sources:
            return False
        waiting += sources
    return True


def _assigned_sources(program: Program, handle: _NodeKey) -> list[_NodeKey]:
    """Return the tensors assigned to a variable of the graph; [] if unknown (those of asset names are known)."""
    variable = program.nodes.get(handle)
    if variable is None or variable.op != "VarHandleOp" or handle[0] is not _GRAPH:
        return []
    shared = variable.attr["shared_name"].s
    # A second handle with the same name, or one without a name, may refer to the same variable.
    if program.variables[shared] > 1 or (shared and program.variables[b""]):
        return []
    written = []
    for node in program.consumers[handle[1]]:
        if node.op == "AssignVariableOp" and len(node.input) > 1:
            written.append((_GRAPH, node_of(node.input[1])))
        elif node.op not in _READING:
            return []
    return written


def _argument_sources(program: Program, function: str, position: int) -> list[_NodeKey] | None:
    """Return the values of one argument of a function over all its calls; None where they cannot be determined."""
    graph = program.graph.object_graph_def
    if function in program.exposed_functions:
        held = graph.concrete_functions
        bound = held[function].bound_inputs if function in held else ()
        slot = position - (len(program.arguments[function]) - len(bound))
        if slot < 0 or not 0 <= bound[slot] < len(graph.nodes) or not graph.nodes[bound[slot]].HasField("asset"):
            return None
    sources = []
    for scope, node in program.callers[function]:
        plain = node.op in _CALLS and node.attr["f"].func.name == function
        if not plain or position >= len(node.input):
            return None
        sources.append((scope, node_of(node.input[position])))
    return sources


def _where(scope: str | None, node: node_def_pb2.NodeDef) -> str:
    return f"node {shown(node.name, 40)}" + (" of the graph" if scope is _GRAPH else f" of function {shown(scope, 50)}")
