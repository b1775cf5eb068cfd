"""Two real vLLMs as one engine under routing policies, and what the simulator says of the same."""
