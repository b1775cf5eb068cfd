"""Which policy of eviction finds how much of recorded prompts in a small cache."""
