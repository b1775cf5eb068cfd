"""What the simulator costs as instances and queries grow."""
