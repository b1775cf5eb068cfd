"""The documentation is checked by running it."""
