"""What a server makes of load: queries a second, what it adds to each, and ten times too many."""
