"""Who goes first: deadlines, maps beside people, and overload."""
