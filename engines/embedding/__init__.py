"""Embedding engines."""

from .minilm import MiniLM
from .openai_embeddings import OpenAIEmbeddings

__all__ = ["MiniLM", "OpenAIEmbeddings"]
