"""What clients send: bodies, files, documents by URL, and how much of it is too much."""
