"""Queries in PostgreSQL, so that they outlive the process that runs them."""
