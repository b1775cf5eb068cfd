"""`make demo`: two questions about these docs, answered through an optimised graph."""
