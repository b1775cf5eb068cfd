"""Language models."""

from .openai_server import OpenAIServer

__all__ = ["OpenAIServer"]
