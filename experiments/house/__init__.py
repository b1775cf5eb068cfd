"""The size of the code, counted by what Python reads, and what hangs together too much."""
