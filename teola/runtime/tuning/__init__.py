"""Tuning options of policies by replaying what came lately."""
