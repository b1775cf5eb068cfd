"""The block cache of an LLM instance: who holds which KV blocks, and which of them go first."""

from teola.kv.block_keys import (
    BYTES_OF_A_TOKEN,
    Excerpt,
    excerpt_keys,
    follow,
    root,
    text_keys,
    token_keys,
)
from teola.kv.cache import BlockCache, Table
from teola.kv.decoding_blocks import DecodingBlocks
from teola.kv.host_tier import Swap
from teola.kv.policies import NEVER, POLICIES, Access, Policy, looks_ahead, make_policy

__all__ = [
    "BYTES_OF_A_TOKEN",
    "NEVER",
    "POLICIES",
    "Access",
    "BlockCache",
    "DecodingBlocks",
    "Excerpt",
    "Policy",
    "Swap",
    "Table",
    "excerpt_keys",
    "follow",
    "looks_ahead",
    "make_policy",
    "root",
    "text_keys",
    "token_keys",
]
