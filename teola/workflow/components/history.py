"""The conversation so far, as prompts carry it: after the instruction, before the question.

It is known from the start of a query, so there it can be prefilled before anything was retrieved;
and what stands before it is the same for a whole conversation (without instructions of its own, for
every query), so it can be found in a prefix cache.
"""

from __future__ import annotations

from teola.graph import Part, Role
from teola.workflow.block import Block


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


def instruction_parts(block: Block) -> tuple[Part, ...]:
    """The parts for the input `instructions`, which hold for a whole conversation; none if nothing
    gives it."""
    instructions = block.may_read("instructions")
    if instructions is None:
        return ()
    return (Part(Role.INSTRUCTION, instructions.ref), Part(Role.INSTRUCTION, "\n\n"))
