"""Embedding engines."""

from .minilm import MiniLM

__all__ = ["MiniLM"]
