"""What is served: an agent, one question to a model, and one to people."""

from __future__ import annotations

from typing import Final

from teola import Agent, App, Ask, Generate
from teola.tools import tool


@tool(pure=True)
def measure(number: int) -> str:
    """Measure a stone.

    Args:
        number: of the stone
    """
    return f"stone {number} is {number + 3} metres high"


QUESTION: Final = {"question": "text"}
ANSWER: Final = {"answer": "answer"}
agent = App("agent", Agent([measure], at_most=20), inputs=QUESTION, outputs=ANSWER)
answering = Generate(max_tokens=3000, context_required=False)
plain = App("plain", answering, inputs=QUESTION, outputs=ANSWER)
drafting = Generate("drafting", context_required=False, outputs={"answer": "draft"})
approving = Ask("May this be sent?\n\n{draft}")
asking = App("asking", drafting >> approving, inputs=QUESTION, outputs=ANSWER)
