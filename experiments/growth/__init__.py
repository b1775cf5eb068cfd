"""What it costs that a graph grows, part by part."""
