"""The runtime of applications that name none."""

from __future__ import annotations

import threading

from teola.runtime.runtime import Runtime

_default: Runtime | None = None
_default_lock = threading.Lock()


def default_runtime() -> Runtime:
    """The runtime of applications that name none: the defaults, started when first used."""
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = Runtime()
        return _default
