"""The life of a query: in a program with a journal, on a server, and across them."""
