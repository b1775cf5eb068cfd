"""Whole applications on real engines, under Teola and under other orchestrators."""
