"""The texts that every `matched` and `expert` variant sends, exactly as our applications make them.

The instructions are taken from the components themselves; the layout around them is written out
here once more, and `parity` asserts that it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from teola.workflow.components import expansion, generate

REWRITINGS: Final = 3
ANSWER_TOKENS: Final = 32
EXPANSION_TOKENS: Final = 192
_FORMS: Final = ("What is known: {}", "Explain in detail: {}", "Give the rules: {}")


def rewritings(question: str) -> list[str]:
    """What every system's model is made to answer when it is asked to rewrite `question`.

    The model is random, so its own lines would mean nothing. The server is asked to decode this
    text (a structured output with one choice): every step is computed as usual.
    """
    asked = question.partition(": ")[2] or question  # without the edition
    return [form.format(asked) for form in _FORMS]


def expansion_text(question: str) -> str:
    """The answer to an expansion call: one rewriting a line."""
    return "".join(f"{line}\n" for line in rewritings(question))


def expand(question: str, history: str | None) -> str:
    """The prompt of query expansion."""
    instruction = expansion.INSTRUCTION.replace("{n}", str(REWRITINGS))
    return f"{instruction}{_history(history)}Question: {question}\n\nRewritings:\n"


def answer(question: str, history: str | None, passage: str) -> str:
    """An answer from one passage: a leaf of the tree, and the first round of refining."""
    return f"{_head(question, history)}\n\nContext:\n{passage}\n\nAnswer: "


def refine(question: str, history: str | None, passage: str, before: str) -> str:
    """A later round: the answer so far, and another passage."""
    so_far = f"\n\nThe answer so far, to be improved:\n{before}"
    return f"{_head(question, history)}{so_far}\n\nContext:\n{passage}\n\nAnswer: "


def merge(question: str, history: str | None, drafts: Sequence[str]) -> str:
    """The root of the tree: one answer out of those from single passages."""
    found = "\n\n".join(drafts)
    label = "\n\nAnswers found in single passages, to be merged into one:\n"
    return f"{_head(question, history)}{label}{found}\n\nAnswer: "


def _head(question: str, history: str | None) -> str:
    return f"{generate.INSTRUCTION}{_history(history)}Question: {question}"


def _history(history: str | None) -> str:
    return "" if history is None else f"Conversation so far:\n{history}\n\n"
