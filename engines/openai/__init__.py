"""What engines share that speak to an OpenAI-compatible server: the connection, what comes over it,
and finding out who answers."""
