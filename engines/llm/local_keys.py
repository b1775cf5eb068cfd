"""Keys of calls to a model whose tokenizer is in this process."""

from __future__ import annotations

from contextlib import suppress

from teola.engine import Call, Keys
from teola.errors import EngineError

from . import block_keys
from .local_tokens import LocalTokens


def of_call(
    tokens: LocalTokens | None,
    engine: str,
    call: Call,
    block_tokens: int,
    salt: str,
    *,
    complete: bool,
) -> Keys:
    """By the ids of the prompt; by its text before the tokenizer is loaded, or if it is not valid
    Unicode."""
    if tokens is not None:
        with suppress(EngineError):
            ids = tokens.prompt(call, engine, complete=complete).ids
            return block_keys.of_ids(ids, block_tokens, salt)
    return block_keys.of_text(call.all_parts, block_tokens, salt)
