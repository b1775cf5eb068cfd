"""A process that indexes a folder, to be killed.

    python -m experiments.indexing.indexer DATA_DIR FOLDER COLLECTION

It says `begin` once its engines run, and in the end what it did, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from experiments.indexing.files import CHUNKING
from teola import EngineConfig, Runtime
from teola.collections import IndexingStep, index

ENGINES = ("documents", "embedding", "vectorstore")


def runtime(data_dir: Path) -> Runtime:
    """With a database of its own; vectors are the same on every machine."""
    return Runtime(
        {
            "vectorstore": EngineConfig("vectorstore", {"data_dir": str(data_dir)}),
            "embedding": EngineConfig("embedding", {"dtype": "float32"}),
        },
        learn=False,
    )


def indexed(home: Runtime, folder: Path, collection: str) -> dict[str, Any]:
    """Make the collection what the folder is. embedded: chunks that went through the model."""
    embedded = 0

    def count(step: IndexingStep) -> None:
        nonlocal embedded
        embedded += step.items if step.state == "embedded" else 0

    done = index(
        folder,
        collection=collection,
        runtime=home,
        sync=True,
        overrides=CHUNKING,
        on_progress=count,
    )
    if done["failed"]:
        raise AssertionError(f"not every file was indexed: {done['failed'][:3]}")
    return {**done, "embedded": embedded}


def main() -> None:
    data_dir, folder, collection = sys.argv[1:]
    with runtime(Path(data_dir)) as home:
        home.start(home.ensure(ENGINES)).result()
        print("begin", flush=True)
        print(json.dumps(indexed(home, Path(folder), collection)), flush=True)


if __name__ == "__main__":
    main()
