"""Language models."""

from .extractive import ExtractiveReader
from .openai_server import OpenAIServer
from .transformers_model import TransformersModel
from .vllm_inprocess import VLLMInProcess
from .vllm_server import VLLMServer

__all__ = ["ExtractiveReader", "OpenAIServer", "TransformersModel", "VLLMInProcess", "VLLMServer"]
