"""Schemathesis over the published document, against a real server.

SCHEMATHESIS_SEED=7        where they begin (1)
SCHEMATHESIS_ONLY=rerank   only operations with this in their path
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.serve.conftest import Served, soon
from tests.serve.fuzz.published import particular
from tests.soak.forms import short_and_long

pytestmark = pytest.mark.timeout(420)  # a machine that does much besides
SEED = int(os.environ.get("SCHEMATHESIS_SEED", "1"))
ONLY = os.environ.get("SCHEMATHESIS_ONLY", "")
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
WIDE = 4
"""So many more cases are made of an operation that has a body."""
SPARE = 1.02
"""Of some operations there are fewer different cases than their share."""


@dataclass
class Run:
    """Requests of one run. statuses: how many answers had which."""

    url: str
    session: requests.Session
    statuses: Counter[int] = field(default_factory=Counter)

    def attempt(self, operation: APIOperation, mode: GenerationMode, cases: int) -> None:
        """Make up to `cases` requests of one operation."""

        @seed(SEED)
        @settings(
            max_examples=cases,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Case) -> None:
            response = case.call(base_url=self.url, session=self.session, timeout=60)
            self.statuses[response.status_code] += 1
            assert response.status_code < 500 or hurried(case, response.status_code), (
                f"{response.status_code}: {response.text}\n{case.as_curl_command()}"
            )
            case.validate_response(response, checks=CHECKS)

        try:
            ask()
        except BaseException as error:
            error.add_note(
                f"{mode.value} {operation.label}; to replay: SCHEMATHESIS_SEED={SEED} "
                f"SCHEMATHESIS_ONLY='{operation.path}' and the same command"
            )
            raise


def hurried(case: Case, status: int) -> bool:
    """Whether the client itself gave the query too little time."""
    body = case.body if isinstance(case.body, dict) else {}
    deadline = body.get("deadline_s", 120)
    return status == 504 and isinstance(deadline, (int, float)) and deadline < 10


def shares(
    document: dict[str, Any], found: list[APIOperation], cases: int
) -> Iterator[tuple[Any, Any, int]]:
    """Operation, mode and number of cases; one case is enough of what takes nothing."""
    weights: dict[int, int] = {}
    for i, operation in enumerate(found):
        told = document["paths"][operation.path][operation.method]
        weights[i] = WIDE if "requestBody" in told else int(bool(told.get("parameters")))
    each = SPARE * cases / (2 * max(1, sum(weights.values())))
    for i, operation in enumerate(found):
        if not weights[i]:
            yield operation, GenerationMode.POSITIVE, 1
            continue
        for mode in GenerationMode:
            yield operation, mode, round(each * weights[i]) + 1


@short_and_long("count", 200, 10_000, pytest.mark.nightly)
def test_no_case_breaks_it_and_every_answer_is_as_published(fuzzed: Served, count: int) -> None:
    with httpx.Client(base_url=fuzzed.url, timeout=60) as client:
        document = particular(client)
    schema = schemathesis.openapi.from_dict(document)
    found = [result.ok() for result in schema.get_all_operations()]
    chosen = [operation for operation in found if ONLY in operation.path]
    with requests.Session() as session:
        run = Run(fuzzed.url, session)
        for operation, mode, cases in shares(document, chosen, count):
            run.attempt(operation, mode, cases)
    print(f"seed {SEED}: {sum(run.statuses.values())} cases, {dict(run.statuses.most_common())}")
    if not ONLY:
        assert sum(run.statuses.values()) >= count
        assert {200, 400, 404, 422} <= run.statuses.keys()
        assert 202 in run.statuses or count < 2000, "few are accepted in the background"
    soon(lambda: not fuzzed.board.running)
