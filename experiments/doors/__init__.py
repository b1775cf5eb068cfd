"""What hostile content does to the loop of a server, door by door."""
