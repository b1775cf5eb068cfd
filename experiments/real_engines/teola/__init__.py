"""Teola itself, on engines that record their calls."""
