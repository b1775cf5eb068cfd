"""Language models."""

from .extractive import ExtractiveReader
from .openai_server import OpenAIServer
from .vllm_server import VLLMServer

__all__ = ["ExtractiveReader", "OpenAIServer", "VLLMServer"]
