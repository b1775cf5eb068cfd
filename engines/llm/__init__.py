"""Language models."""

from .extractive import ExtractiveReader
from .openai_server import OpenAIServer

__all__ = ["ExtractiveReader", "OpenAIServer"]
