"""The journal: seals, rows, and what is read from them; its database, where one is needed."""
