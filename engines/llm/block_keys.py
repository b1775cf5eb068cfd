"""What prefix caches find blocks of a prompt by: chained digests, salted as the server salts.

The key of a block is a digest of the key before it and of what the block holds; the first one
follows the salt. So equal keys mean equal prompts up to there, of the same tenant where the server
keeps tenants apart, and whoever has the key of a block can go on from it (`follow`). Without a
tokenizer a block is so many bytes of text as its tokens have on average.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from teola.engine import Keys, QueryContext, TextPart
from teola.kv import BYTES_OF_A_TOKEN, text_keys, token_keys


def tenant_salt(salt_key: str, context: QueryContext) -> str:
    """What a vLLM is given as `cache_salt`, so that tenants do not find each other's blocks."""
    return hmac.new(salt_key.encode(), context.tenant.encode(), hashlib.sha256).hexdigest()


def of_ids(ids: Sequence[int], block_tokens: int, salt: str) -> Keys:
    """Keys of a prompt's token ids."""
    return Keys(len(ids), token_keys(ids, block_tokens, salt))


def of_text(parts: Sequence[TextPart], block_tokens: int, salt: str) -> Keys:
    """Keys of a prompt whose tokenizer is out of reach; the tokens are estimated."""
    text = "".join(part.text for part in parts)
    return Keys(len(text) // BYTES_OF_A_TOKEN + 1, text_keys(text, block_tokens, salt))
