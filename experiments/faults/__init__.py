"""Instances are killed while queries run on them: what is lost, wrong, and left over."""
