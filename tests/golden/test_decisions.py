"""Golden decisions: what goes where, when and with what, to the letter.

Who changes them on purpose writes them anew (`python -m tests.golden`), in a commit of its own.
"""

from __future__ import annotations

import pytest

from tests.golden import beside
from tests.golden.decisions import QUERIES, SCENARIOS, decisions, path_of


@pytest.mark.parametrize(("app", "policy"), SCENARIOS)
def test_the_core_decides_as_before(app: str, policy: str) -> None:
    assert decisions(app, policy) == path_of(app, policy).read_text()


@pytest.mark.parametrize(("app", "policy"), SCENARIOS)
def test_the_scenario_says_something(app: str, policy: str) -> None:
    """Both instances of the LLM are used, queries share batches, one is cancelled."""
    lines = path_of(app, policy).read_text().splitlines()
    sent = [line.split() for line in lines if " send " in line]
    assert {words[2] for words in sent} >= {"llm.0", "llm.1"}
    batches: dict[tuple[str, str], set[str]] = {}
    for words in sent:
        batches.setdefault((words[2], words[4]), set()).add(words[5].partition("/")[0])
    assert max(map(len, batches.values())) > 1
    ends = [line.split()[2:] for line in lines if " end " in line]
    assert len(ends) == QUERIES
    assert ["q3", "cancelled"] in ends
    aborts = (app, policy) == ("advanced_rag", "topology")
    assert any(" abort " in line for line in lines) or not aborts


def test_who_goes_before_whom_beside_what_grows_is_as_before() -> None:
    assert beside.decisions() == beside.KEPT.read_text()
