"""What a query did: its trace, the pictures made of it, and log lines."""
