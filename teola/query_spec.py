"""Moved to `teola.query.spec`."""

from teola.moved import moved

__getattr__ = moved(__name__, "teola.query.spec")
