"""What prompts begin with: what is told the model, and the conversation so far.

The conversation is known from the start of a query, so it can be prefilled before anything was
retrieved. By default it stands behind the component's own instruction, which is the same for every
query, so a prefix cache holds both for as long as the conversation goes on. Where several
components of a template read one conversation, their instructions part what they could share:
with `history_first` it stands before all that they are told, and is computed once for all of them.
"""

from __future__ import annotations

from teola.graph import Part, Role
from teola.workflow.block import Block


def opening_parts(block: Block, instruction: str) -> tuple[Part, ...]:
    """The parts for the component's `instruction`, for the input `instructions`, which hold for a
    whole conversation, and for the input `history`; none for what nothing gives."""
    instruction_parts = [Part(Role.INSTRUCTION, instruction)]
    instructions = block.may_read("instructions") if block.declares("instructions") else None
    if instructions is not None:
        instruction_parts += [Part(Role.INSTRUCTION, instructions.ref), _BREAK]
    history: list[Part] = []
    if (so_far := block.may_read("history")) is not None:
        begins = Part(Role.INSTRUCTION, "Conversation so far:\n")
        history += [begins, Part(Role.HISTORY, so_far.ref), _BREAK]
    return (
        (*history, *instruction_parts)
        if block.config.history_first
        else (*instruction_parts, *history)
    )


_BREAK = Part(Role.INSTRUCTION, "\n\n")
