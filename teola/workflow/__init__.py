"""Templates of components, and how they become p-graphs."""
