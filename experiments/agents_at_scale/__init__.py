"""Agents whose sessions do not fit in the KV memory together: what seeing their graph is worth."""
