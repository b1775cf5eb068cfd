"""What vLLM's grammars make of the schema of a decision: they take it, and what it says holds."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from teola.runtime.hosts.model_server import PYTHON
from teola.tools import Tool, Toolbox
from tests.architecture.tree import ROOT
from tests.tools.test_toolbox import BOX, FOREIGN, greet

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROBE = """
import json, sys
import xgrammar
from vllm.v1.structured_output.backend_xgrammar import has_xgrammar_unsupported_json_features
from xgrammar.testing import _is_grammar_accept_string
told = []
for schema, texts in json.load(sys.stdin):
    grammar = xgrammar.Grammar.from_json_schema(json.dumps(schema))
    found = [_is_grammar_accept_string(grammar, text) for text in texts]
    told.append([has_xgrammar_unsupported_json_features(schema), found])
print(json.dumps(told))
"""


async def never(arguments: Any, context: Any) -> None:
    """Is not called."""
    raise AssertionError


ODD = Toolbox([Tool("odd", "Is odd.", FOREIGN, never), greet])
GOOD = {"tool": "weather", "args": {"city": "Oslo", "days": 2}}
BOSS = {"name": "Ada", "boss": {"name": "Eve", "boss": None}}
FITS: list[list[Any]] = [
    [],
    [GOOD],
    [GOOD, {"id": 3, **GOOD}, {"tool": "nothing", "args": {}}],
    [{"tool": "greet", "args": {"who": BOSS}}],
]
REFERS: list[list[Any]] = [
    [{"tool": "weather", "args": {"city": "Oslo", "days": "$1.days"}}],
    [{"tool": "warm", "args": {"degrees": ["$1", 3]}}],
    [{"tool": "warm", "args": {"degrees": "$12.hits[0].degrees"}}],
    [{"tool": "greet", "args": {"who": {"name": "Ada", "boss": "$2"}}}],
]
FITS_NOT: list[list[Any]] = [
    [{"tool": "wether", "args": {"city": "Oslo"}}],
    [{"tool": "weather", "args": {"city": "Oslo", "days": "two"}}],
    [{"tool": "weather", "args": {"city": "Oslo", "days": 12}}],
    [{"tool": "weather", "args": {"days": 2}}],
    [{"tool": "weather", "args": {"city": "Oslo", "dys": 2}}],
    [{"tool": "greet", "args": {"who": {"name": "Ada", "boss": {"name": 3}}}}],
    [{"tool": "warm", "args": {"degrees": "near $1"}}],
    [GOOD, GOOD, GOOD, GOOD],
]
ODD_FITS = {
    "title": "ab", "when": "2026-01-02", "step": 5, "one": "x", "self": {"title": "ab"}, "deep": 3,
}  # fmt: skip


def written(calls: list[Any]) -> str:
    return json.dumps({"thought": "I need it.", "calls": calls})


def odd(**change: Any) -> list[Any]:
    return [{"tool": "odd", "args": {**ODD_FITS, **change}}]


def test_its_grammars_hold_a_model_to_the_schema() -> None:
    cases: list[tuple[Any, list[list[Any]], list[list[Any]]]] = [
        (BOX.decision(most=3), [*FITS, *REFERS], FITS_NOT),
        (BOX.decision(most=3, references=False), FITS, [*REFERS, *FITS_NOT]),
        (ODD.decision(), [odd()], [odd(when="never"), odd(step="x"), odd(self={"title": 3})]),
    ]
    asked = [(schema, [*map(written, [*fits, *not_])]) for schema, fits, not_ in cases]
    done = subprocess.run(
        [ROOT / PYTHON, "-c", PROBE],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for (_, fits, not_), (unsupported, found) in zip(cases, told, strict=True):
        assert not unsupported
        assert found == [True] * len(fits) + [False] * len(not_)
