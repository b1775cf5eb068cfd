"""SQL databases as engines, which can only be read."""

from .sql_database import SqlDatabase
from .sql_databases import SqlDatabases

__all__ = ["SqlDatabase", "SqlDatabases"]
