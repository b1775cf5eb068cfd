"""Traces of LLM services, replayed under the scheduler's policies in virtual time."""
