"""Databases that are only read: a filter of statements, readers, and processes that they run in.

    select_only.py    the filter: one statement that reads, over known tables and by known functions
    lookup.py         runs a filtered statement on a database (`sqlite_reader.py`, ...)
    sql_child.py      the process that reads files within limits; `sql_children.py` keeps a few

Each of the three holds on its own for what it covers, and none is trusted alone.
"""
