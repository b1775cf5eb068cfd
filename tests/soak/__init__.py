"""A server that runs for long, is left by its clients, flooded, stopped, and shot at.

Most tests have a short form, which runs with all others, and a long one: `make soak`.
"""
