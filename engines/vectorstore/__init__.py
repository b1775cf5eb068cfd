"""Vector store engines: chunks of documents with their vectors, and search among them."""

from .embedded import EmbeddedPostgres
from .pgvector import PgVector

__all__ = ["EmbeddedPostgres", "PgVector"]
