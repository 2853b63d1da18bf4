"""A JSON schema as data: what is read, where its parts are, which keywords look misspelled."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from spec_cli.errors import UsageError

Schema = dict[str, Any]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONES = (
    "items", "additionalProperties", "additionalItems", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems", "contentSchema",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
# json-schema.org/draft/2020-12 and before, and what OpenAPI adds
_WORDS = """
    $anchor $comment $defs $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $ref $schema $vocabulary
    additionalItems additionalProperties allOf anyOf const contains contentEncoding contentMediaType contentSchema
    default definitions dependencies dependentRequired dependentSchemas deprecated description discriminator else enum
    example examples exclusiveMaximum exclusiveMinimum externalDocs format id if items maxContains maxItems maxLength
    maxProperties maximum minContains minItems minLength minProperties minimum multipleOf not nullable oneOf pattern
    patternProperties prefixItems properties propertyNames readOnly required then title type unevaluatedItems
    unevaluatedProperties uniqueItems writeOnly x-guidance xml
"""
KEYWORDS = frozenset(_WORDS.split())
MOST_PARTS = 10_000  # a chain of references is followed by recursion
MOST_MULTIPLE = 10_000  # llguidance has a state for each remainder
MOST_TRIED = 2000  # parts, one by one, for the place of a fault


def read_schema(text: str, where: str) -> Schema:
    """The schema in a text; {} is any object, as in llama-server. Raises UsageError."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is no JSON number")

    try:
        schema = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        words = str(error) if isinstance(error, ValueError) else "it is nested too deep"
        raise UsageError(f"{where}: not JSON: {words}") from None
    if schema is True:
        schema = {"title": "anything"}
    if not isinstance(schema, dict):
        raise UsageError(f"{where}: a schema is an object or true, not {json.dumps(schema)[:60]}")
    try:
        if remote := re.search(r'"\$ref": "(https?:[^"#][^"]*)"', json.dumps(schema)):
            raise UsageError(f"{where}: {remote[1]}: references to the network are not followed")
        if (n := sum(1 for _ in parts(schema))) > MOST_PARTS:
            raise UsageError(f"{where}: {n} schemas in one are more than {MOST_PARTS}")
        for place, part in parts(schema):
            if isinstance(step := part.get("multipleOf"), int | float) and step > MOST_MULTIPLE:
                raise UsageError(f"{where}: {place}/multipleOf: {step} takes too long (at most {MOST_MULTIPLE})")
            if isinstance(part.get("pattern"), str):
                part["pattern"] = _without_controls(part["pattern"])
        return _closed(_inlined(schema, schema)) if schema else {"type": "object"}
    except RecursionError:
        raise UsageError(f"{where}: the schema is nested too deep") from None


_OBJECT = {"properties", "required", "patternProperties", "minProperties", "maxProperties"}
_BRANCHES = ("allOf", "anyOf", "oneOf")


def _closed(schema: Schema) -> Schema:
    """Objects have the members that they name and no others, where a schema does not speak of others.

    As in llama-server (common/json-schema-to-grammar.cpp), whatever JSON Schema allows: small models never stop
    to invent members. Not where several parts describe one object.
    """
    every = [part for _, part in parts(schema)]
    shared: set[int] = set()
    for part in every:
        branches = [branch for key in _BRANCHES for branch in part.get(key, ()) if isinstance(branch, dict)]
        if len(part.get("allOf", ())) > 1 or ("$ref" in part and part.keys() & _OBJECT):
            return schema
        if branches and part.keys() & _OBJECT:
            inner = [part, *(inside for branch in branches for _, inside in parts(branch))]
            if any("$ref" in inside for inside in inner):
                return schema
            shared |= {id(inside) for inside in inner}
    for part in every:
        names, needed = part.get("properties"), part.get("required", [])
        spoken = part.keys() & {"additionalProperties", "patternProperties", "unevaluatedProperties"}
        if isinstance(names, dict) and isinstance(needed, list) and not spoken and id(part) not in shared:
            part["additionalProperties"] = not {name for name in needed if isinstance(name, str)} <= names.keys()
    return schema


def _children(schema: Schema) -> Iterator[tuple[str, Any]]:
    """(JSON pointer from here, part) of the schemas directly inside."""
    for key in _MAPS:
        if isinstance(inside := schema.get(key), dict):
            yield from ((f"/{key}/{_escaped(name)}", part) for name, part in inside.items())
    for key in _ONES:
        if isinstance(inside := schema.get(key), dict):
            yield f"/{key}", inside
    for key in _LISTS:
        if isinstance(inside := schema.get(key), list):
            yield from ((f"/{key}/{i}", part) for i, part in enumerate(inside))


def parts(schema: Schema, place: str = "#") -> Iterator[tuple[str, Schema]]:
    """Every schema inside with its JSON pointer, inner ones first, itself last."""
    for pointer, part in _children(schema):
        if isinstance(part, dict):
            yield from parts(part, place + pointer)
    yield place, schema


def place_of(schema: Schema, is_wrong: Callable[[Schema], bool]) -> str:
    """The JSON pointer of the innermost part that is wrong by itself."""
    known: Schema = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    for n, (place, part) in enumerate(parts(schema)):
        if n >= MOST_TRIED:
            break
        if part is not schema and is_wrong({**known, **part}):
            return place
    return "#"


def misspelled(schema: Schema) -> str | None:
    """A key that is no keyword and looks like one: it would be silently without effect."""
    for place, part in parts(schema):
        for key in part:
            if key not in KEYWORDS and (near := difflib.get_close_matches(key, KEYWORDS, n=1, cutoff=0.85)):
                return f"{place}: {key!r} is no keyword (did you mean {near[0]!r}?)"
    return None


def _without_controls(pattern: str) -> str:
    """The pattern with U+0001 in no negated class.

    Of a class that holds every control character llguidance 1.9 makes one that holds `"` and `\\` as well.
    """
    return re.sub(r"(\\.)|(\[\^)", lambda found: found[1] or r"[^\x01", pattern, flags=re.DOTALL)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _inlined(schema: Any, root: Schema) -> Any:
    """The schema with the references directly in a oneOf replaced by what they name.

    llguidance enforces a oneOf whose parts it can tell apart, and does not look behind references for that.
    """
    if isinstance(schema, list):
        return [_inlined(part, root) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _inlined(value, root) for key, value in schema.items()}
    if isinstance(schema.get("oneOf"), list):
        changed["oneOf"] = [_inlined_reference(part, root) for part in changed["oneOf"]]
    return changed


def _inlined_reference(part: Any, root: Schema) -> Any:
    for _ in range(100):
        if not (isinstance(part, dict) and list(part) == ["$ref"] and isinstance(part["$ref"], str)):
            break
        name = re.fullmatch(r"#/(\$defs|definitions)/([^/]+)", part["$ref"])
        found = root.get(name[1], {}).get(name[2].replace("~1", "/").replace("~0", "~")) if name else None
        if found is None:
            break
        part = found
    return part
