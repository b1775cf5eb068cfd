"""Figure 9 of the paper: what the two kinds of graph optimisation gain, each alone and together."""
