"""Agents side by side on one real vLLM, Teola's and LangGraph's."""
