"""Agents with function calls: Teola's modes beside other frameworks, on one server, with one set of
tools."""
