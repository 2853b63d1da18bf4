"""JSON schemas: what an answer ends with is JSON that its schema describes, whoever guesses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tiny
from cases import answer_of, generate, refused
from conftest import ask

from spec_cli.engine import Engine
from spec_cli.errors import UsageError
from spec_cli.llama.json_schema import parts, read_schema
from spec_cli.llama.loading import LoadParams
from spec_cli.llama.model import Model
from spec_cli.llama.schema import JsonSchema
from spec_cli.settings import Settings

TEXT, NUMBER, INTEGER, BOOLEAN, NULL = ({"type": t} for t in ("string", "number", "integer", "boolean", "null"))


def obj(required: bool = True, **properties: Any) -> dict[str, Any]:
    """An object of these properties and no others, as OpenAI's strict mode wants it."""
    more = {"required": list(properties), "additionalProperties": False} if required else {}
    return {"type": "object", "properties": properties, **more}


def of(**schema: Any) -> dict[str, Any]:
    """A schema inside an object."""
    return obj(a=schema)


def with_defs(schema: dict[str, Any], **defs: Any) -> dict[str, Any]:
    return {"$defs": defs, **schema}


CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": INTEGER}, "required": ["kind", "lives"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "name": TEXT}, "required": ["kind", "name"]}
NODE = obj(v=BOOLEAN, next={"anyOf": [{"$ref": "#/$defs/Node"}, NULL]})
SCHEMAS: dict[str, Any] = {
    "any object": {},
    "anything": True,
    "a string": TEXT,
    "a number": NUMBER,
    "an integer": INTEGER,
    "a truth value": BOOLEAN,
    "nothing": NULL,
    "several types": {"type": ["integer", "null", "boolean"]},
    # ggml-org/llama.cpp#7789: members beside the named ones
    "additional members": {**obj(required=False, name=TEXT), "additionalProperties": True},
    "additional texts": {**obj(required=False, a=INTEGER), "additionalProperties": {"type": "string", "maxLength": 3}},
    "a map": {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2},
    "members by pattern": {"type": "object", "patternProperties": {"^x": BOOLEAN}, "additionalProperties": False},
    "some members": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": NULL},
    "any value in a member": {**obj(a={}, b={"title": "B"}, c=True)},
    "any items": of(type="array", items={}, maxItems=2),
    # ggml-org/llama.cpp#7797, vllm-project/vllm#17894: bounds of numbers
    "a score": of(type="integer", minimum=1, maximum=5),
    "a population": of(type="integer", minimum=0, maximum=20000000000),
    "below zero": of(type="number", minimum=-1.5, maximum=-0.25),
    "exclusive bounds": of(type="number", exclusiveMinimum=0, exclusiveMaximum=1),
    "a multiple": of(type="integer", multipleOf=7, minimum=-50, maximum=50),
    "long integers": of(type="integer", minimum=10**17),
    # ggml-org/llama.cpp#7863, #21433: a list of types, with more keywords
    "a nullable enum": of(type=["string", "null"], enum=["red", "green", None]),
    "a nullable short text": of(type=["string", "null"], maxLength=3),
    "a nullable date": of(type=["string", "null"], format="date"),
    "one type in a list": of(type=["string"], enum=["x", "y"]),
    "a nullable object": of(type=["object", "null"], properties={"q": INTEGER}, required=["q"]),
    "a nullable list": of(type=["array", "null"], items=INTEGER, maxItems=2),
    # ggml-org/llama.cpp#2501, abetlen/llama-cpp-python#1199: characters beyond the BMP, and those that JSON escapes
    "thumbs": {"enum": ["👍", "👎"]},
    "a key beyond the BMP": obj(**{"👍": BOOLEAN}),
    "a path": {"enum": ["C:\\dir", "/tmp"]},
    "several lines": {"const": 'two\nlines\t"quoted"\f'},
    "odd keys": obj(**{'"': NULL, "\\": NULL, "é ü": NULL, "": NULL}),
    "constants": {"enum": [1, -2.5, "x", None, [1, {"a": 2}], {"b": []}]},
    # ggml-org/llama.cpp#8073: allOf of one reference, as pydantic writes fields with a default
    "allOf a reference": with_defs(
        obj(color={"allOf": [{"$ref": "#/$defs/Color"}], "default": "red"}), Color={"enum": ["red", "blue"]}
    ),
    "allOf with required": {"allOf": [{"type": "object", "properties": {"a": NULL, "b": NULL}, "required": ["a"]}]},
    "allOf of two": {"allOf": [obj(required=False, a=BOOLEAN), {"properties": {"b": NULL}, "required": ["b"]}]},
    "allOf of bounds": of(allOf=[INTEGER, {"minimum": 3}, {"allOf": [{"maximum": 4}]}]),
    "definitions named as types": with_defs(
        obj(q={"$ref": "#/$defs/string"}, v={"$ref": "#/$defs/value"}), string=INTEGER, value=BOOLEAN, object=NULL
    ),
    # ggml-org/llama.cpp#16790, #8199: references
    "a reference into a list": obj(l={"anyOf": [INTEGER, NULL]}, r={"$ref": "#/properties/l/anyOf/0"}),
    "a recursive model": with_defs({"$ref": "#/$defs/Node"}, Node=NODE),
    "a reference to the root": {**obj(required=False, v=NULL, next={"$ref": "#"}), "additionalProperties": False},
    "escaped pointers": with_defs(
        obj(x={"$ref": "#/$defs/a~1b"}, y={"$ref": "#/$defs/c~0d"}), **{"a/b": NULL, "c~d": BOOLEAN}
    ),
    "a member called $ref": obj(**{"$ref": BOOLEAN}),
    "older definitions": {"definitions": {"x": BOOLEAN}, **obj(a={"$ref": "#/definitions/x"})},
    "keywords beside a reference": with_defs(
        of(**{"$ref": "#/$defs/x"}, maximum=3), x={"type": "integer", "minimum": 2}
    ),
    # unions as pydantic and zod write them
    "a union": of(anyOf=[INTEGER, {"type": "string", "maxLength": 2}, NULL]),
    "a discriminated union": with_defs(
        of(oneOf=[{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], discriminator={"propertyName": "kind"}),
        Cat=CAT, Dog=DOG,
    ),
    "a union of objects": {"anyOf": [CAT, DOG]},
    "exactly one": {"oneOf": [TEXT, INTEGER]},
    "a tuple": of(type="array", prefixItems=[INTEGER, BOOLEAN], items=False, minItems=2),
    "a tuple and more": of(type="array", prefixItems=[NULL], items=BOOLEAN, minItems=1, maxItems=3),
    "a set of choices": of(type="array", items={"enum": ["x", "y"]}, minItems=1, maxItems=2),
    # ggml-org/llama.cpp#25746, #27859; firecrawl/firecrawl#4512: long texts and lists
    "a long text": of(type="string", maxLength=20000),
    "a longer text than could be": of(type="string", minLength=1, maxLength=10**7),
    "a long list": of(type="array", items=INTEGER, maxItems=100000),
    "a short text": of(type="string", minLength=2, maxLength=4),
    "a pattern": of(type="string", pattern="^[a-c]{2}-[0-9]$"),
    "a pattern of anything": of(type="string", pattern="^[^x]+$", maxLength=5),
    "a pattern with a dot": of(type="string", pattern="^.{1,3}$"),
    "a date": of(type="string", format="date"),
    "a time": of(type="string", format="date-time"),
    "an address": of(type="string", format="ipv4"),
    "a uuid": of(type="string", format="uuid"),
    "annotations": {"title": "T", "$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": "c",
                    **of(type="boolean", description="d", default=True, examples=[False], readOnly=True)},
}  # fmt: skip


@pytest.fixture(scope="module")
def speller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A model that says any byte as readily as another."""
    path = tmp_path_factory.mktemp("speller") / "plain.gguf"
    tiny.plain(path, letters_only=False)
    with Engine(Settings(model=path, threads=1, ctx_size=512, spec_type=("none",))) as engine:
        yield engine


def ending(engine: Engine) -> tuple[str, ...]:
    """Biases that make an answer short: its end, and what closes texts, lists and objects."""
    return f"{tiny.EOS}+40", *(f"{tiny.byte(ord(c))}+{bias}" for c, bias in (('"', 6), ("]", 8), ("}", 8)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_ends_by_itself_is_json_that_the_schema_describes(speller: Engine, name: str) -> None:
    schema = SCHEMAS[name]
    meant = {"type": "object"} if schema == {} else schema
    validator = jsonschema.validators.validator_for(meant)(meant, format_checker=jsonschema.FormatChecker())
    ended = 0
    for temp, seed in ((0.0, 1), (1.0, 2), (1.0, 3), (2.0, 4)):
        how = {"temp": temp, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": seed, "predict": 400}
        answer = ask(speller, "abc", json_schema=json.dumps(schema), logit_bias=ending(speller), **how)
        if answer.finish_reason == "stop":
            ended += 1
            validator.validate(json.loads(answer.text))
        else:
            assert answer.finish_reason == "length"
    assert ended, "no answer came to its end"


@pytest.mark.parametrize(
    ("schema", "more"),
    [
        (obj(required=False, a=NULL, b=NULL), False),
        (with_defs(obj(required=False, a={"$ref": "#/$defs/X"}), X=obj(required=False, b=NULL)), False),
        ({**obj(required=False, a=NULL), "additionalProperties": True}, True),
        ({**obj(required=False, a=NULL), "required": ["z"]}, True),
        ({**obj(required=False, a=NULL), "anyOf": [{"properties": {"b": NULL}}, {"required": ["c"]}]}, True),
        ({"allOf": [obj(required=False, a=NULL), obj(required=False, b=NULL)]}, True),
    ],
)
def test_objects_have_no_members_that_the_schema_does_not_name_as_in_llama_server(
    schema: dict[str, Any], more: bool
) -> None:
    closed = read_schema(json.dumps(schema), "-j")
    described = [part for _, part in parts(closed) if "properties" in part]
    assert [part.get("additionalProperties") is False for part in described] == [not more] * len(described)


@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_guesses_change_nothing_under_a_schema(models: Path, temp: float) -> None:
    model = models / "plain.gguf"
    how: dict[str, Any] = {"threads": 1, "ctx_size": 256, "temp": temp, "seed": 5, "predict": 60}
    exact: dict[str, Any] = {"cache_type_k": "f32", "cache_type_v": "f32", "flash_attn": 0}
    schema = of(type="array", items={"enum": ["red", "green", "red green"]}, minItems=8, maxItems=30)
    plain = Settings(model=model, json_schema=json.dumps(schema), **how, **exact)
    texts = set()
    for more in (
        {"spec_type": ("none",)},
        {"spec_type": ("ngram-simple",), "spec_ngram_simple_size_n": 2, "spec_ngram_simple_size_m": 6},
        {"model_draft": model, "spec_draft_n_max": 5},
        {"model_draft": models / "clock.gguf", "spec_draft_n_max": 4},
    ):
        with Engine(replace(plain, **more)) as engine:
            answer = ask(engine, "abc")
            texts.add((answer.text, answer.finish_reason))
            if more != {"spec_type": ("none",)}:
                assert answer.stats.total.drafted
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (TEXT | {"pattern": '^[^"]+$'}, r'"a\"b"'),
        (TEXT | {"pattern": r"^[^\\]+$"}, r'"a\\b"'),
        ({**obj(required=False, a=NULL), "additionalProperties": True}, r'{"a":null,"\u0061":1}'),
        ({**obj(required=False, a=NULL), "additionalProperties": True}, '{"a":null,"a":1}'),
    ],
)
def test_what_a_schema_forbids_cannot_be_spelled_in_another_way(
    models: Path, schema: dict[str, Any], text: str
) -> None:
    with Model(models / "plain.gguf", "target", LoadParams(), dry=True) as model:
        demand = JsonSchema(model.vocab, json.dumps(schema), "-j")
        for byte in map(tiny.byte, text.encode()):
            if not demand.allows(byte):
                return
            demand.accept(byte)
        assert not demand.allows(tiny.EOS)


def chain(n: int) -> str:
    """A schema that leads from reference to reference."""
    links = {f"N{i}": obj(a={"$ref": f"#/$defs/N{i + 1}"}) for i in range(n // 2)}
    return json.dumps({"$defs": {**links, f"N{n // 2}": NULL}, "$ref": "#/$defs/N0"})


def test_a_long_chain_of_references_ends_no_process(speller: Engine) -> None:
    assert ask(speller, "abc", json_schema=chain(5000), predict=3).text.lstrip().startswith("{")


REFUSED = [
    ({"a": {"not": TEXT}}, '#/properties/a: cannot be enforced: Unimplemented keys: ["not"]'),
    ({"a": {"if": {}, "then": {}}}, '#/properties/a: cannot be enforced: Unimplemented keys: ["if", "then"]'),
    ({"a": {"type": "array", "uniqueItems": True}}, 'Unimplemented keys: ["uniqueItems"]'),
    ({"a": {"type": "array", "items": {"type": "array", "contains": {}}}}, "#/properties/a/items: cannot"),
    ({"a/b": {"anyOf": [NULL, {"propertyNames": {}}]}}, "#/properties/a~1b/anyOf/1: cannot"),
    ({"a": {"dependentRequired": {"a": ["b"]}}}, "dependentRequired"),
    ({"a": {"unevaluatedProperties": False}}, "unevaluatedProperties"),
    ({"a": {"$dynamicRef": "#x"}}, "$dynamicRef"),
    ({"a": {"oneOf": [NUMBER, INTEGER]}}, "#/properties/a: cannot be enforced: oneOf"),
    ({"a": {"type": "string", "format": "color"}}, "#/properties/a: cannot be enforced: Unknown format: color"),
    ({"a": {"type": "string", "pattern": "(?=a)b"}}, "#/properties/a: cannot be enforced: regex parse error"),
    ({"a": {"type": "number", "multipleOf": 999999937}}, "#/properties/a/multipleOf: 999999937 takes too long"),
    ({"a": {"type": "objekt"}}, "#/properties/a: cannot be enforced: Invalid type: objekt"),
    ({"a": {"type": "string", "maxLenght": 3}}, "'maxLenght' is no keyword (did you mean 'maxLength'?)"),
    ({"a": {"$ref": "#/$defs/none"}}, "'/$defs/none' does not exist"),
    ({"a": {"type": "integer", "minimum": 5, "maximum": 2}}, "nsatisfiable"),
]


@pytest.mark.parametrize(("properties", "words"), REFUSED)
def test_what_cannot_be_enforced_is_refused_with_its_place(
    speller: Engine, properties: dict[str, Any], words: str
) -> None:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    with pytest.raises(UsageError) as error:
        ask(speller, "abc", json_schema=json.dumps(schema))
    assert str(error.value).startswith("-j/--json-schema: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{bad", "not JSON: Expecting property name"),
        ("", "not JSON"),
        ("[" * 50_000, "not JSON: it is nested too deep"),
        ('{"items":' * 900 + "{}" + "}" * 900, "nested too deep"),
        ('{"items":' * 200 + "{}" + "}" * 200, "recursion limit exceeded"),
        ('{"const": NaN}', "not JSON: NaN is no JSON number"),
        (chain(20_000), "20002 schemas in one are more than 10000"),
        ("3", "a schema is an object or true, not 3"),
        ("false", "a schema is an object or true, not false"),
        ('{"$ref": "https://example.org/x.json"}', "references to the network are not followed"),
        ('{"$ref": "#"}', "nothing can follow this schema"),
        ('{"$defs": {"N": {"$ref": "#/$defs/N"}}, "$ref": "#/$defs/N"}', "nothing can follow this schema"),
        ('{"x-guidance": {"lenient": true}, "not": {}}', 'Unimplemented keys: ["not"]'),
    ],
)
def test_what_is_no_schema_is_refused(speller: Engine, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=r"^-j/--json-schema: ") as error:
        ask(speller, "abc", json_schema=text)
    assert words in str(error.value)


def test_an_answer_may_not_be_blank_for_ever(models: Path) -> None:
    """A model that loves empty lines gets as many as llama.cpp allows, then it must go on."""
    with Engine(Settings(model=models / "plain.gguf", threads=1, ctx_size=256, temp=0.0)) as engine:
        love = tuple(f"{tiny.byte(ord(c))}+90" for c in "\n ")
        answer = ask(engine, "abc", json_schema=json.dumps(obj(a=NULL)), logit_bias=love, predict=200)
    assert json.loads(answer.text) == {"a": None}
    assert max(len(line) - len(line.lstrip()) for line in answer.text.split("\n")) <= 20


def test_a_schema_comes_from_the_command_line_a_file_and_rows(models: Path, tmp_path: Path) -> None:
    """A row that asks for what cannot be is an error record; its neighbours are answered."""
    from test_batch import batch, jsonl, records

    model, file = models / "plain.gguf", tmp_path / "s.json"
    file.write_text("\ufeff" + json.dumps({"enum": ["maybe"]}))
    assert answer_of(generate(model, "-p", "abc", "-jf", file, "--json"))["text"] == '"maybe"'
    assert "#: cannot be enforced" in refused(generate(model, "-p", "abc", "-j", '{"not": {}}'), 2)
    rows = [
        {"prompt": "abc", "json_schema": {"const": "👍"}},
        {"prompt": "abc", "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
        {"prompt": "abc", "json_schema": "[" * 5000},
        {"prompt": "abc", "response_format": {"type": "json_object"}, "n_predict": 1},
    ]
    got = records(batch(model, "-np", 2, stdin=jsonl(*rows)).stdout)
    assert [r.get("text") for r in got] == ['"👍"', None, None, "{"]
    assert 'Unimplemented keys: ["not"]' in got[1]["error"]["reason"]
    assert "nested too deep" in got[2]["error"]["reason"]
