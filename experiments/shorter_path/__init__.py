"""What else shortens a query's path, each measured on its own: reuse, work ahead, guesses."""
