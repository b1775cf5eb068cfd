"""Which instances keep whole pages of prompts, so that long ones are not looked up block by block.

    blocks   0 .. 31 │ 32 .. 63 │ 64 .. 95 │ 96 97       5 look-ups instead of 98

A page is `PAGE` blocks that follow one another, from a multiple of it on. Its last key stands for
all of them, because keys are chained. What is noted was seen block by block, and counts until one
of the blocks is kept no longer: less may be noted than is kept, and never more. Where prompts part
within a page, only one of the two is noted, so that no block is in more than one page.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

PAGE: Final = 32


class Pages:
    """where: by block, a bit for each instance that keeps it, and the bit `paged` if it is in a
    page. kept: by its last key, a bit for each instance that keeps all of a page."""

    def __init__(self, where: dict[Hashable, int], paged: int) -> None:
        self._where, self._paged = where, paged
        self.kept: dict[Hashable, int] = {}
        self._blocks: dict[Hashable, Sequence[Hashable]] = {}
        self._page: dict[Hashable, Hashable] = {}
        """Block -> the last key of its page."""

    def note(self, keys: Sequence[Hashable], end: int, instances: int) -> None:
        """Note that these instances keep the page with which a prompt ends. instances: a bit for
        each."""
        last = keys[end - 1]
        if last in self.kept:
            self.kept[last] |= instances
            return
        blocks, where, paged = keys[end - PAGE : end], self._where, self._paged
        if any(where[block] & paged for block in blocks):
            return
        self.kept[last], self._blocks[last] = instances, blocks
        for block in blocks:
            where[block] |= paged
            self._page[block] = last

    def lost(self, i: int, keys: Sequence[Hashable]) -> None:
        """Instance `i` keeps these blocks, which are in pages, no longer."""
        for key in keys:
            last = self._page.get(key)
            if last is not None:  # it went with the one before
                self._leave(last, self.kept[last] & ~(1 << i))

    def forget(self, instances: int) -> None:
        """Note that these instances keep nothing any more. instances: a bit for each."""
        for last, kept in [*self.kept.items()]:
            self._leave(last, kept & ~instances)

    def _leave(self, last: Hashable, instances: int) -> None:
        """Leave a page to those of its instances that are named here."""
        if instances:
            self.kept[last] = instances
            return
        del self.kept[last]
        for block in self._blocks.pop(last):
            del self._page[block]
            self._where[block] ^= self._paged
            if not self._where[block]:
                del self._where[block]

    def validate(self) -> None:
        """Raises AssertionError if more is noted than is kept. O(n): for tests."""
        for last, instances in self.kept.items():
            for block in self._blocks[last]:
                missing = instances & ~self._where.get(block, 0)
                assert not missing, f"page {last!r} is noted where {block!r} is not kept"
                assert self._page[block] == last, f"{block!r} is in two pages"
        paged = {block for block, bits in self._where.items() if bits & self._paged}
        assert paged == self._page.keys(), "a block is in a page that is gone"
        assert len(paged) == PAGE * len(self.kept), "pages share blocks"
