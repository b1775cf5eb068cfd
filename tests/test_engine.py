"""What engines are given."""

from __future__ import annotations

import pytest

from teola.engine import Call, QueryContext, SequenceHandle, TextPart
from teola.graph.ops import DecodeParams
from teola.graph.prompt import Role

RULES, NOTES, ASKED = (
    TextPart(role, role.value) for role in (Role.INSTRUCTION, Role.CONTEXT, Role.QUESTION)
)


@pytest.mark.parametrize("state", [None, object()])
def test_the_whole_prompt_has_its_prefix_whether_it_is_kept_or_not(state: object) -> None:
    """What was kept may be lost, and is computed again then."""
    prefix = SequenceHandle("llm", 0, (RULES, NOTES), state=state)
    assert Call(QueryContext("q"), (ASKED,), DecodeParams(), prefix).all_parts == (
        RULES,
        NOTES,
        ASKED,
    )
    assert Call(QueryContext("q"), (ASKED,), DecodeParams()).all_parts == (ASKED,)
