"""Figure 8 of the paper: whole applications under load, in simulation."""
