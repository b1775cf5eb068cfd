"""Moved to `teola.query.result`."""

from teola.moved import moved

__getattr__ = moved(__name__, "teola.query.result")
