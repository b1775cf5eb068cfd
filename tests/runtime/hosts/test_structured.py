import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from teola.errors import InputError, OutputError
from teola.runtime.hosts.structured import MOST_STEPS, check_schema, validate_schema

SCORES = json.dumps(
    {
        "type": "object",
        "properties": {"scores": {"type": "array", "items": {"type": "number"}}},
        "required": ["scores"],
    }
)


@pytest.mark.parametrize(
    "text",
    [
        '{"scores": [1, 2]}',
        ' \n{"scores": [1, 2]}\n',
        'As [1] says:\n```json\n{"scores": [1, 2]}\n```\nand {"x": 1}.',
        'Sure {note}! {"scores": [1, 2]} Done.',
        'First {"scores": ["no"]}, rather {"scores": [1, 2]}.',
    ],
)
def test_the_value_is_found(text):
    assert validate_schema(text, SCORES) == {"scores": [1, 2]}


def test_scalars_and_lists():
    assert validate_schema("```\n42\n```", '{"type": "integer"}') == 42
    assert validate_schema('so: ["a [1]"] [2]', '{"type": "array"}') == ["a [1]"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"scores": [1, "two"]}', r"schema at \$\.scores\[1\]: 'two' is not of type 'number'"),
        ("{}", r"at \$: 'scores' is a required property"),
        ("sorry\nno", r"expected JSON, found none; the output begins 'sorry\\nno'"),
        ('{"scores": [1', "found none"),
        ('{"wrapped": {"scores": [1]}, oops', "found none"),
        ('{"text": "so {\\"scores\\": [1]} {', "found none"),
        ('{"scores": [NaN]}', "found none"),
        ("[" * 100_000, "found none"),
        (json.dumps({"scores": "x" * 9999}), r"at \$\.scores: .* is not of type 'array'"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(text, says):
    with pytest.raises(OutputError, match=says) as caught:
        validate_schema(text, SCORES)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "is not JSON"),
        ('{"type": "thing"}', r"not a JSON schema at \$\.type"),
        ('{"$ref": "http://127.0.0.1:1/schema"}', "refers to 'http://127.0.0.1:1/schema'"),
        ('{"$ref": "#"}', "nests without end"),
    ],
)
def test_what_is_no_schema_is_the_callers_mistake(schema, says):
    with pytest.raises(InputError, match=says):
        validate_schema("{}", schema)


def _doubling(part):
    """References that lead twice to the next, forty times over."""
    definitions = {f"d{i}": {"allOf": [part(i + 1), part(i + 1)]} for i in range(40)}
    return {"$defs": {**definitions, "d40": {}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "schema",
    [
        _doubling(lambda i: {"$ref": f"#/$defs/d{i}"}),
        _doubling(
            lambda i: {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "$ref": f"#/$defs/d{i}",
            }
        ),
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "allOf": [{"additionalProperties": {"$ref": "#"}}] * 2,
        },
    ],
)
def test_a_schema_that_multiplies_is_given_up(schema):
    deep = "1"
    for _ in range(40):
        deep = f'{{"a": {deep}}}'
    with pytest.raises(InputError, match="too involved"):
        validate_schema(deep, json.dumps(schema))
    assert validate_schema("1", '{"type": "integer"}') == 1


def test_a_long_answer_may_take_more_steps_than_a_short_one():
    schema = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    text = json.dumps([[i] for i in range(MOST_STEPS)])
    assert len(validate_schema(text, json.dumps(schema))) == MOST_STEPS


def test_answers_that_are_checked_side_by_side_have_steps_of_their_own():
    schema = json.dumps({"type": "array", "items": {"type": "integer"}})
    text = json.dumps([7] * 1500)

    def check(_):
        return len(validate_schema(text, schema))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(check, range(64))) == [1500] * 64


def test_a_schema_is_checked_by_itself():
    check_schema(SCORES)
    with pytest.raises(InputError, match="not a JSON schema"):
        check_schema('{"type": "thing"}')
    with pytest.raises(InputError, match="not in it"):
        check_schema('{"$ref": "#/$defs/none"}')
