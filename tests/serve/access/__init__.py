"""Who may ask, and from where."""
