"""Figure 11 of the paper: what the latency along the real critical path is made of."""
