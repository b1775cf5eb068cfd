"""What somebody wants of an application: bounds, and the name of a session."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from teola.engine import NAME_CHARACTERS
from teola.errors import InputError
from teola.policies.ledger import BudgetAccount, Ledger
from teola.query.spec import QuerySpec, ledger_of, program_of


@pytest.mark.parametrize(
    ("tokens", "cost", "most"),
    [(10, None, (10, inf)), (None, 2.5, (inf, 2.5)), (10, 2.5, (10, 2.5))],
)
def test_a_bound_of_a_query_is_an_account_of_its_own(
    tokens: int | None, cost: float | None, most: tuple[float, float]
) -> None:
    """Before those of the query around it, and those that it shares."""
    outer, shared = BudgetAccount("outer"), BudgetAccount("shared")
    around = Ledger(outer)
    ask = QuerySpec({}, most_tokens=tokens, most_cost=cost)
    found = ledger_of(ask, around, [shared])
    assert found is not None
    own, *others = found.accounts
    assert found.own is own
    assert (own.name, (own.most_tokens, own.most_cost)) == ("this query", most)
    assert others == [outer, shared]
    alone = ledger_of(ask, None, [])
    assert alone is not None
    assert len(alone.accounts) == 1


def test_a_query_without_a_bound_has_those_of_others() -> None:
    ask, shared = QuerySpec({}), BudgetAccount("shared")
    around = Ledger(BudgetAccount("outer"))
    assert ledger_of(ask, None, []) is None
    assert ledger_of(ask, around, []) is around
    found = ledger_of(ask, around, [shared])
    assert found is not None
    assert (found.own, found.accounts) == (None, (*around.accounts, shared))


@pytest.mark.parametrize(
    ("session", "told"),
    [
        (7, "session must be a text, not int"),
        ("", "session is empty; leave it out"),
        (" \n", "session is empty; leave it out"),
        ("x" * (NAME_CHARACTERS + 1), f"session has {NAME_CHARACTERS + 1} characters, more than"),
    ],
)
def test_what_is_no_session_is_refused(session: Any, told: str) -> None:
    with pytest.raises(InputError) as raised:
        program_of("default", session)
    assert str(raised.value).startswith(told)


def test_a_session_has_a_name_that_tells_nothing_and_is_its_tenants() -> None:
    longest = "x" * NAME_CHARACTERS
    names = [("t", longest), ("t", "a"), ("t", "a "), ("u", "a"), ("t t", "a"), ("t", "\ud800")]
    programs = [program_of(tenant, session) for tenant, session in names]
    assert len({*programs}) == len(names)
    assert {len(program) for program in programs} == {32}
    assert program_of("1 t", "a") != program_of("1", "t a")
    assert program_of("t", "a") == programs[1]
