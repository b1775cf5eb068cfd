"""Figures 1 and 3 of the paper: where a chain of modules spends its time, and what that leaves."""
