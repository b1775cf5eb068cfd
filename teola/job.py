"""Moved to `teola.query.job`."""

from teola.moved import moved

__getattr__ = moved(__name__, "teola.query.job")
