"""A validator for the part of JSON Schema that the report uses, so that reading a report needs no extra package."""

import json
import re

_TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    # 3.0 is an integer in JSON Schema; True is not.
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}

# The keywords that `first_problem` checks. It would ignore any other keyword of a schema.
KEYWORDS = frozenset(
    "$schema $id title description type const enum pattern minLength minimum maximum required properties"
    " additionalProperties items".split()
)


def first_problem(value, schema: dict, path: str = "$") -> str | None:
    """Describe the first way in which a JSON value breaks a schema.

    Args:
        value: what json.loads returns.
        schema: JSON Schema restricted to KEYWORDS.
        path: JSON path of the value, for the message.

    Returns:
        One sentence that begins with the JSON path ("$.measurements[3].value: ..."), or None.
    """
    return _own_problem(value, schema, path) or _child_problem(value, schema, path)


def _own_problem(value, schema: dict, path: str) -> str | None:
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        return f"{path}: {show(value)} is not of type {' or '.join(kinds)}."
    if "const" in schema and not _equal(value, schema["const"]):
        return f"{path}: {show(value)} is not {show(schema['const'])}."
    if "enum" in schema and not any(_equal(value, allowed) for allowed in schema["enum"]):
        return f"{path}: {show(value)} is not one of {', '.join(map(show, schema['enum']))}."
    if isinstance(value, str):
        # In JSON Schema `$` is the end of the text, in Python also the line break before it.
        if "pattern" in schema and not re.search(schema["pattern"].replace("$", r"\Z"), value):
            return f"{path}: {show(value)} does not match {schema['pattern']}."
        if len(value) < schema.get("minLength", 0):
            return f"{path}: {show(value)} is shorter than {schema['minLength']} characters."
    if _TYPES["number"](value):
        if "minimum" in schema and value < schema["minimum"]:
            return f"{path}: {show(value)} is below {schema['minimum']}."
        if "maximum" in schema and value > schema["maximum"]:
            return f"{path}: {show(value)} is above {schema['maximum']}."
    return None


def _child_problem(value, schema: dict, path: str) -> str | None:
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                return f"{path}.{name}: is missing."
        declared = schema.get("properties", {})
        additional = schema.get("additionalProperties", True)
        for name in sorted(value):
            if name not in declared and additional is False:
                return f"{path}.{show(name)}: is not a known field."
            inner = declared.get(name, additional)
            if isinstance(inner, dict):
                problem = first_problem(value[name], inner, f"{path}.{name[:60]}")
                if problem:
                    return problem
    if isinstance(value, list) and "items" in schema:
        for position, item in enumerate(value):
            problem = first_problem(item, schema["items"], f"{path}[{position}]")
            if problem:
                return problem
    return None


def _equal(first, second) -> bool:
    return first == second and isinstance(first, bool) == isinstance(second, bool)


def show(value) -> str:
    """Format a value in at most 60 characters, for messages."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
