"""How much of every headline rests on which figure of the simulated testbed."""
