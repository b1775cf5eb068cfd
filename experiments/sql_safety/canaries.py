"""What an attack could have changed: digests of files and rows, settings, locks, sessions."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

SERVER = {
    "settings": "SELECT md5(string_agg(name || coalesce(setting, ''), ',' ORDER BY name)) "
    "FROM pg_settings WHERE context <> 'internal'",
    "advisory locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
    "sessions": "SELECT count(*) FROM pg_stat_activity WHERE usename = 'visitor' "
    "AND state <> 'idle'",
    "large objects": "SELECT count(*) FROM pg_largeobject_metadata",
    "relations": "SELECT md5(string_agg(relname, ',' ORDER BY relname)) FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace",
    "functions": "SELECT count(*) FROM pg_proc",
    "roles": "SELECT md5(string_agg(rolname, ',' ORDER BY rolname)) FROM pg_roles",
    "sequence": "SELECT last_value::text || is_called FROM numbers",
}


def of_folder(folder: Path) -> dict[str, Any]:
    """Each file's digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def of_server(admin: str, tables: tuple[str, ...]) -> dict[str, Any]:
    """Of a PostgreSQL, by its superuser."""
    import psycopg

    with psycopg.connect(admin, autocommit=True) as connection:
        seen = {about: connection.execute(sql.encode()).fetchone() for about, sql in SERVER.items()}
        for table in tables:
            rows = f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM \"{table}\" t"
            seen[table] = connection.execute(rows.encode()).fetchone()
    return seen


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what is not as it was."""
    return sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
