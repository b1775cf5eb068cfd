"""Figure 10 of the paper: what the batching policies differ by, on the same graphs."""
