"""What is searched offline where nobody gave a folder: Python's language reference."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from teola.errors import EngineError
from teola_engines.websearch import Corpus
from teola_engines.websearch.corpus_documents import of_python

from .conftest import ask
from .indexing import searching, told


def test_without_a_folder_it_is_pythons_language_reference() -> None:
    collected = of_python()
    assert collected.name.startswith("python-3.")
    urls = [document.url for document in collected.documents]
    assert "pydoc:nonlocal" in urls
    assert len(urls) > 60
    assert "Python's language reference" in Corpus().spec.description


@pytest.fixture
def empty_dir(servers: None) -> Iterator[Path]:
    """A data folder in which nothing has been indexed."""
    folder = Path(tempfile.mkdtemp(prefix="teola-test-"))
    yield folder
    shutil.rmtree(folder)


async def test_what_is_packaged_is_indexed_beside_the_first_searches(empty_dir: Path) -> None:
    with told(1) as first:
        async with searching(empty_dir, None) as engine, asyncio.timeout(60):
            assert not first.is_set(), "the engine takes requests before anything is indexed"
            await first.wait()
            await engine.close()  # which ends it; another start goes on
            with pytest.raises(EngineError, match="is not started"):
                await ask(engine, "nonlocal")
    async with searching(empty_dir, None) as engine:
        (hits,) = await ask(engine, "nonlocal")
    assert hits[0].id == "pydoc:nonlocal"
