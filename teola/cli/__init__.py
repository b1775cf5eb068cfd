"""The command line: `teola run`, `explain`, `index`, and so on; `main` is what is installed."""

from teola.cli.program import call, main

__all__ = ["call", "main"]
