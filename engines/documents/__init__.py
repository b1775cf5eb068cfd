"""The document loader."""

from .loader import FileLoader

__all__ = ["FileLoader"]
