"""The block cache of an LLM instance: who holds which KV blocks, and which of them go first."""

from teola.kv.cache import BlockCache, Table
from teola.kv.policies import POLICIES, Access, Policy, make_policy

__all__ = ["POLICIES", "Access", "BlockCache", "Policy", "Table", "make_policy"]
