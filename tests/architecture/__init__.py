"""Rules about the tree itself: imports, exports, packages and style."""
