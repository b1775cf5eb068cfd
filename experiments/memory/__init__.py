"""Whether memory grows over many queries in one process; see README.md."""
