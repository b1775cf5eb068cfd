"""Where a router falls off a cliff: every trace of agents by memory and by load."""
