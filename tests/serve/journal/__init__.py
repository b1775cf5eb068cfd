"""Background queries in their journal."""
