"""SQL databases as engines, which can only be read."""

from .sql_database import SqlDatabase

__all__ = ["SqlDatabase"]
