"""Structured answers: the JSON value in a model's output, checked against the caller's schema.

Servers that know JSON schemas make sure of it while they decode, others do not, and either may
stop at its token limit; so every answer is checked here, whoever wrote it. That may be on an event
loop, so there is an end to how long it takes; of a schema, which takes longer, nobody finds out
there whether it is one who has called `check_schema` elsewhere before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, NoReturn

from teola.errors import InputError, OutputError
from teola.tools.schema_steps import at_most, counted

EXCERPT: Final = 80
"""Characters of the output, and of a validator's explanation, that an error shows."""

MOST_STEPS: Final = 5_000
"""Keywords of a schema that are looked at for one answer, and one more for each of its characters:
references to references multiply them, a schema of a kilobyte can ask for more than there is time
for. A plain schema looks at fewer than one a character."""

KNOWN: Final = 256
"""Schemas that are remembered."""

_prepared: Final = set[str]()
_known: Final = set[str]()
_thread: Final = ThreadPoolExecutor(1, "teola-schemas")
_OPENING: Final = re.compile(r"[\[{]")
_FENCED: Final = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)


class Misfit(OutputError):
    """What was written is not JSON that fits: another try, told why, may do better."""


def validate_schema(text: str, schema_json: str) -> Any:
    """The JSON value that `text` is or holds, amid prose or code fences, and that fits.

    Raises Misfit (no JSON, or the path that does not fit) and InputError (not a schema).
    """
    validator, failure = _validator(schema_json), None
    with at_most(MOST_STEPS + len(text)):
        for value in _values(text):
            error = _misfit(validator, value)
            if error is None:
                return value
            failure = failure or f"at {error.json_path}: {_short(error.message)}"
    if failure is None:
        raise Misfit(f"expected JSON, found none; the output begins {text[:EXCERPT]!r}")
    raise Misfit(f"the output does not fit its JSON schema {failure}")


def check_schema(schema_json: str) -> None:
    """Raise InputError for what is no schema, or refers to what is not there. On any thread; takes
    about a millisecond for each part of a schema, and nothing the next time."""
    with suppress(Misfit):
        validate_schema("null", schema_json)


def was_checked(schema_json: str) -> bool:
    """Whether a schema was checked before, so that an answer can be held against it at once."""
    return schema_json in _known


def prepare(schema_json: str) -> None:
    """Have a schema checked on a thread, unless it was: while an answer is being written there is
    time for that, and when it is there no more."""
    if schema_json in _prepared:
        return
    if len(_prepared) >= KNOWN:
        _prepared.clear()
    _prepared.add(schema_json)
    _thread.submit(_checked, schema_json)


def _checked(schema_json: str) -> None:
    with suppress(InputError):  # who validates by it is told
        check_schema(schema_json)


def _misfit(validator: Any, value: Any) -> Any:
    """What is wrong with `value` (a ValidationError), if anything is. Raises InputError."""
    from teola.validators import Unresolvable, best_match

    try:
        return best_match(validator.iter_errors(value))
    except Unresolvable as missing:
        raise InputError(f"the JSON schema refers to {missing.ref!r}, not in it") from None
    except RecursionError:
        raise InputError("the JSON schema or the output nests without end") from None


@lru_cache(maxsize=KNOWN)
def _validator(schema_json: str) -> Any:
    """A validator that never fetches what a `$ref` names, and counts its steps."""
    from teola.validators import Draft202012Validator, Registry, SchemaError, validator_for

    try:
        schema = json.loads(schema_json)
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
    except ValueError as error:
        raise InputError(f"the JSON schema is not JSON: {error}") from None
    except RecursionError:
        raise InputError("the JSON schema nests too deeply") from None
    except SchemaError as error:
        place = error.json_path
        raise InputError(f"not a JSON schema at {place}: {_short(error.message)}") from None
    validator = _counted(kind)(_in_one_dialect(schema), registry=Registry())
    if len(_known) >= KNOWN:
        _known.clear()
    _known.add(schema_json)
    return validator


_counted: Final = lru_cache(maxsize=16)(counted)


def _in_one_dialect(schema: Any) -> Any:
    """Without the dialects of parts, which would be looked at by other validators."""
    if isinstance(schema, list):
        return [_in_one_dialect(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    dialect = isinstance(schema.get("$schema"), str)
    kept = {key: part for key, part in schema.items() if not (dialect and key == "$schema")}
    return {key: _in_one_dialect(part) for key, part in kept.items()}


def _values(text: str) -> Iterator[Any]:
    """The JSON values in `text`, outermost only: all of it, a fenced block, those in prose.

    What lies inside a broken value is not offered: a fragment of an answer is not the answer.
    """
    blocks = [text, *_FENCED.findall(text)]
    for block in blocks:
        try:
            yield json.loads(block, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        else:
            return
    yield from _embedded(text)


def _embedded(text: str) -> Iterator[Any]:
    decoder, start = json.JSONDecoder(parse_constant=_refuse), 0
    while bracket := _OPENING.search(text, start):
        try:
            value, start = decoder.raw_decode(text, bracket.start())
        except json.JSONDecodeError as error:
            if text[error.pos : error.pos + 1] == '"':
                return  # where that string ends, and what is JSON behind it, cannot be told
            start = max(error.pos, bracket.end())
        except (ValueError, RecursionError):
            return
        else:
            yield value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 2 * EXCERPT else f"{line[:EXCERPT]} ... {line[-EXCERPT:]}"
