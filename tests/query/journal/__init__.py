"""The journal without its database: seals, rows, and what is read from them."""
