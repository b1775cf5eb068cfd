"""What `explain` says of a query before it runs, and what it then takes on real engines."""
