"""The conversation so far, as prompts carry it: after the instruction, before the question.

It is known from the start of a query, so there it can be prefilled before anything was retrieved.
"""

from __future__ import annotations

from teola.graph import Part, Role
from teola.workflow.build import Block


def history_parts(block: Block) -> tuple[Part, ...]:
    """The parts for the input `history`; none if nothing gives it."""
    history = block.may_read("history")
    if history is None:
        return ()
    return (
        Part(Role.INSTRUCTION, "Conversation so far:\n"),
        Part(Role.HISTORY, history.ref),
        Part(Role.INSTRUCTION, "\n\n"),
    )
