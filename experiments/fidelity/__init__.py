"""How far the simulator is from real engines that it is given the profile of."""
