"""What each pass gains, and figure 9 of the paper."""
