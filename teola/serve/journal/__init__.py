"""Background queries that outlive the server."""
