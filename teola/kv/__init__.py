"""The block cache of an LLM instance: who holds which KV blocks, and which of them go first."""

from teola.kv.block_keys import Excerpt, chained, excerpt_keys, follow, root, token_keys
from teola.kv.cache import BlockCache, Table
from teola.kv.host_tier import Swap
from teola.kv.policies import POLICIES, Access, Policy, make_policy

__all__ = [
    "POLICIES",
    "Access",
    "BlockCache",
    "Excerpt",
    "Policy",
    "Swap",
    "Table",
    "chained",
    "excerpt_keys",
    "follow",
    "make_policy",
    "root",
    "token_keys",
]
