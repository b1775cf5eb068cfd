"""What is not installed with the core, and the one line that says how to get it.

The core runs graphs against servers by URL. Everything else comes with an extra of the package, and
is imported within `needs`, so that whoever lacks it is told its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from teola.errors import MissingExtra

Extra = Literal[
    "haystack", "langchain", "llama-index", "local", "mcp", "ray", "server", "sql", "tables", "vllm"
]


@contextmanager
def needs(extra: Extra, who: str, *, otherwise: str = "") -> Iterator[None]:
    """Around imports of what comes with `extra`. Raises MissingExtra where it is not installed.

    who: what cannot do without, such as "engine 'embedding'". otherwise: what else would help.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not module or module.startswith("teola"):
            raise
        raise MissingExtra(who, extra, module, otherwise) from error
