"""Keys of prompts by their texts, for instances that have nothing in common but those."""

from __future__ import annotations

from typing import Final

from teola.engine import Call, Keys
from teola.kv import BYTES_OF_A_TOKEN, text_keys

TEXT_BLOCK: Final = 16
"""Tokens of a block, about."""


class TextKeys:
    """`MakesKeys` for any engine. Each tenant has keys of its own, since one does not know which of
    the servers keep tenants' caches apart."""

    block_tokens = TEXT_BLOCK

    def keys(self, call: Call, *, complete: bool = True) -> Keys:
        """Keys of the call's whole prompt; its tokens are estimated."""
        text = "".join(part.text for part in call.all_parts)
        blocks = text_keys(text, TEXT_BLOCK, call.context.tenant)
        return Keys(len(text) // BYTES_OF_A_TOKEN + 1, blocks)
