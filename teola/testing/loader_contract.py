"""What a loader of documents has to keep (see check_engine)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from teola.engine import Fingerprint, Loader, Source, Splitting
from teola.errors import DocumentError
from teola.runtime.hosts.local import LocalHost
from teola.testing.checking import ContractBroken

SENTENCE: Final = "Pier {} is forty metres long, and the ferry leaves from its end. "
SPLITTING: Final = Splitting(chunk_size=32, overlap=4)


def encode(text: str) -> list[int]:
    """Token ids: a word is a token."""
    return [hash(word) & 0xFFFF for word in text.split()]


async def check_loader(host: LocalHost, broken: Callable[[str], ContractBroken]) -> None:
    """Raise what `broken` makes of the first promise that the loader does not keep."""
    loader = cast("Loader", host.engine)
    if not isinstance(loader.pipeline(SPLITTING), str):
        raise broken("`pipeline` has to be a text that changes whenever the chunks would")
    text = "".join(SENTENCE.format(k) for k in range(20))
    source = Source("piers.txt", text=text)
    first = await host.call(loader.fingerprint, source)
    if not isinstance(first, Fingerprint):
        raise broken(f"`fingerprint` gave {first!r}, not a teola.engine.Fingerprint")
    if await host.call(loader.fingerprint, Source("other.txt", text=text)) != first:
        raise broken("`fingerprint` is of the bytes alone: one text under two names has two")
    if (await host.call(loader.fingerprint, Source("piers.txt", text=text + "."))) == first:
        raise broken("`fingerprint` of two texts is the same")
    chunks = await host.call(loader.split, source, SPLITTING, encode)
    if not chunks or not all(isinstance(chunk, str) and chunk.strip() for chunk in chunks):
        raise broken(f"`split` gave {chunks!r:.80}, not texts")
    if len(chunks) < 2:
        raise broken("`split` gave one chunk for a text of ten times the chunk size")
    for k in range(20):
        if not any(f"Pier {k} " in chunk for chunk in chunks):
            raise broken(f"`split` lost sentence {k} of a text")
    if list(await host.call(loader.split, source, SPLITTING, encode)) != list(chunks):
        raise broken("`split` gave other chunks the second time")
    try:
        await host.call(loader.fingerprint, Source("none.txt", path=Path("/nonexistent/none.txt")))
    except DocumentError:
        return
    raise broken("`fingerprint` of a file that is not there raised no DocumentError")
