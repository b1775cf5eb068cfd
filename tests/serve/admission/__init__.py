"""Who is let in while there is much to do."""
