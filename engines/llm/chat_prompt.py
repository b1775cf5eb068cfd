"""Prompt parts as an OpenAI-compatible server wants them: chat messages, or one text.

Parts carry their own spacing and are joined as they are. A beginning of the parts always gives
a beginning of the whole text, which is what lets a server's prefix cache reuse it:

    parts     instruction | question | context | ...       question | context | ...
    system    instruction                                  (none)
    user                    question   context   ...       question   context   ...

Only the first part can be the system message. Later instructions are mostly labels ("Context:")
and belong to what follows them; and a system message that grew with the number of parts known
so far would not be the beginning of anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from teola.engine import TextPart
from teola.graph.prompt import Role


def messages(parts: Sequence[TextPart], *, complete: bool) -> list[dict[str, str]]:
    """The chat messages. `complete`: no part follows, so a lone instruction is what is asked.

    Otherwise the user message may be empty: templates want one, and it opens the next turn.
    """
    head, rest = parts[0], parts[1:]
    if head.role is not Role.INSTRUCTION or (complete and not rest):
        return [{"role": "user", "content": text(parts)}]
    return [
        {"role": "system", "content": head.text},
        {"role": "user", "content": text(rest)},
    ]


def text(parts: Sequence[TextPart]) -> str:
    """The parts as one text, for models without a chat template."""
    return "".join(part.text for part in parts)
