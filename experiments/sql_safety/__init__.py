"""Attacks and honest statements, through the filter and the readers of `teola.sql`."""
