"""Module chains over the same engines: what the paper compares itself with."""
