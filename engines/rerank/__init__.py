"""Rerankers."""

from .cross_encoder import CrossEncoder
from .maxsim import MaxSim

__all__ = ["CrossEncoder", "MaxSim"]
