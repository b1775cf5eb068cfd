"""The page at /ui in a real browser."""
