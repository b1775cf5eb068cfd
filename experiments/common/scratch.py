"""A runtime on the defaults whose database lives in a temporary folder and goes with it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from teola import EngineConfig, Runtime


@contextmanager
def scratch_runtime(engines: Mapping[str, EngineConfig] | None = None) -> Iterator[Runtime]:
    """A Runtime of one's own; `engines` go over the defaults. Nothing is left behind."""
    folder = Path(tempfile.mkdtemp(prefix="teola-"))
    store = EngineConfig("vectorstore", {"data_dir": str(folder)})
    try:
        with Runtime({"vectorstore": store, **(engines or {})}) as runtime:
            yield runtime
    finally:
        shutil.rmtree(folder, ignore_errors=True)
