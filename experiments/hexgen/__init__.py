"""Queries with objectives on unequal instances: Hexgen-Text2SQL's scheduling, and ours."""
