"""Haystack: our work done with it (`system`), and what its documentation builds (`default`)."""
