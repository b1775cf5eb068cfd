"""running: an app on engines of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from teola.app import App
from teola.engine import Engine
from teola.runtime.engines import LIKE_LLM, EngineConfig
from teola.runtime.runtime import Runtime


@contextmanager
def running(
    app: App, engines: Mapping[str, EngineConfig | str | Callable[..., Engine]], **options: Any
) -> Iterator[Runtime]:
    """Let `app` run on a runtime of its own meanwhile, with `engines` over those that it brings
    along or has by default: `with running(app, {"llm": ScriptedModel(...)}): app.run(...)`. Passes
    are verified. options: those of Runtime.

    Raises UnknownName and InputError where an engine cannot be made as it is configured.
    """
    own = app.runtime
    brought = dict(own.configs) if own else {}
    for name in LIKE_LLM:  # these follow the new `llm`, unless the app configures them
        if brought.get(name) == brought.get("llm"):
            brought.pop(name, None)
    with Runtime({**brought, **engines}, **{"debug": True, **options}) as runtime:
        app.runtime = runtime
        try:
            yield runtime
        finally:
            app.runtime = own
