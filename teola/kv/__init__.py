"""The block cache of an LLM instance: who holds which KV blocks, and which of them go first."""

from teola.kv.cache import BlockCache, Table
from teola.kv.keys import Excerpt, excerpt_keys, token_keys
from teola.kv.policies import POLICIES, Access, Policy, make_policy

__all__ = [
    "POLICIES",
    "Access",
    "BlockCache",
    "Excerpt",
    "Policy",
    "Table",
    "excerpt_keys",
    "make_policy",
    "token_keys",
]
