"""What orders of fields save of the prompts over a table, in a cache of prefixes."""
