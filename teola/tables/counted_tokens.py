"""How many tokens the prompts of a call have, where its model runs: counted on some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from teola.engine import Call, MakesKeys, QueryContext, TextPart
from teola.graph import Role
from teola.runtime.runtime import Runtime
from teola.tables.llm_call import LlmCall
from teola.tables.question_run import decode_of

SAMPLED: Final = 64
"""Prompts that are counted."""
CHARACTERS_A_TOKEN: Final = 4.0
"""Characters of a token in English text, about. It is used where no tokenizer counts."""


@dataclass(frozen=True, slots=True)
class TokenSize:
    """How a call's prompts are measured in tokens. instruction: tokens of the instruction.
    characters: mean characters of a token in the text after it. block: tokens of a block of the
    model's prefix cache, which finds whole ones (1: not known)."""

    instruction: float
    characters: float = CHARACTERS_A_TOKEN
    block: int = 1


def token_size(
    runtime: Runtime | None, call: LlmCall, tenant: str, texts: Sequence[str]
) -> TokenSize:
    """The token size of a call, measured on some of its prompts. texts: what follows the
    instruction in each. Nothing is started: a model that does not run yet is not asked."""
    name, guess = call.model or "llm", TokenSize(len(call.prompt) / CHARACTERS_A_TOKEN)
    if runtime is None or not texts or not runtime.runs([name]):
        return guess
    engine = getattr(runtime.host(name), "engine", None)
    if not isinstance(engine, MakesKeys):
        return guess
    context, decode = QueryContext("explain", tenant or "default"), decode_of(call)
    beginning = TextPart(Role.INSTRUCTION, call.prompt)
    alone = engine.keys(Call(context, (beginning,), decode), complete=False).tokens
    tokens = sum(
        engine.keys(Call(context, (beginning, TextPart(Role.QUESTION, text)), decode)).tokens
        for text in texts
    )
    each = sum(map(len, texts)) / max(1, tokens - alone * len(texts))
    return TokenSize(alone, each, max(1, engine.block_tokens))
