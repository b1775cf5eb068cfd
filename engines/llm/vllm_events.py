"""What a vLLM publishes of its prefix cache (`--kv-events-config`), read into keys of our own.

    sequence number | msgpack [time, [event, ...], rank]

    BlockStored       block_hashes  parent_block_hash  token_ids  block_size  extra_keys  ...
    BlockRemoved      block_hashes
    AllBlocksCleared

Nothing is assumed of how vLLM hashes: that depends on version and options. A block's key follows
from its parent's and from its token ids (`block_keys`), and the first block's from its salt, which
stands in `extra_keys`. A vLLM too old to give these does not say whose the block is; then nothing
can be said of it, nor of what follows it. The same holds for blocks of images, of another LoRA than
the engine's, of another size, and for those whose parent was stored before anybody listened.

Two prompts that are computed at the same time leave two blocks with one hash, stored twice and
removed twice, so copies are counted.

What every prompt begins with is always in use, so it is never stored anew: who began to listen too
late would never hear of it, nor of anything after it. A request can have the blocks that it finds
reported again; `missed` says which should.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from teola.engine import PrefixChange
from teola.kv import follow, root

REPORT_ALL: Final = {"kv_cache_report_mode": "full"}
"""A request's extra arguments: what it finds in the cache is published as if it were stored now."""
CLEARED: Final = PrefixChange(cleared=True)
GPU: Final = "GPU"
"""The medium of the cache itself, on any device; others are where blocks are moved out to."""
GROUP: Final = 0
"""A model with several kinds of attention has a group of blocks for each, with equal hashes. One
stands for all: a server gives no prefix that lacks any of them."""

_FIELDS: Final = {
    "BlockStored": (
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}

BlockEvent = Mapping[str, Any]


class StoredBlocks:
    """The blocks that one vLLM keeps, by its hashes and by our keys.

    salted: whether the server is sent salts. lora: the adapter whose blocks count, None: the base
    model's. limit: how many blocks the server has, if that is known.
    """

    def __init__(
        self,
        block_tokens: int,
        *,
        salted: bool = True,
        lora: str | None = None,
        limit: int | None = None,
    ) -> None:
        self._block_tokens, self._salted, self._lora = block_tokens, salted, lora
        self._limit = limit
        self._keys: dict[object, bytes] = {}
        self._copies: dict[object, int] = {}
        self._kept: set[bytes] = set()
        self._asked: set[bytes] = set()
        self._next: int | None = None
        self._blind = True

    def __len__(self) -> int:
        return len(self._keys)

    def clear(self) -> PrefixChange:
        """Forget everything, because something was not heard."""
        self._forget(blind=True)
        self._next = None
        return CLEARED

    def missed(self, first: bytes) -> bool:
        """Whether a prompt's first block, by its key, may be kept without our knowing it. Says so
        once: a second report would look like a second copy."""
        if not self._blind or first in self._kept or first in self._asked:
            return False
        self._asked.add(first)
        return True

    def read(self, sequence: int, payload: bytes) -> PrefixChange:
        """What one message changes; everything, if one before it was lost, or it makes no sense."""
        change = _Net(cleared=self._next not in (None, sequence))
        if change.cleared:
            self._forget(blind=True)
        if sequence == 0:
            self._blind = False
        self._next = sequence + 1
        try:
            for event in _events(payload):
                self._apply(event, change)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
            change.clear()
            self._forget(blind=True)
        if self._limit is not None and len(self._keys) > self._limit:  # removals were not told
            change.clear()
            self._forget(blind=True)
        return change.told()

    def _forget(self, *, blind: bool) -> None:
        """blind: it may keep something all the same."""
        self._blind = blind
        for known in (self._keys, self._copies, self._kept, self._asked):
            known.clear()

    def _apply(self, event: BlockEvent, change: _Net) -> None:
        kind = event["type"]
        if kind == "AllBlocksCleared":
            change.clear()
            self._forget(blind=False)
        elif event.get("medium") in (None, GPU) and event.get("group_idx") in (None, GROUP):
            if kind == "BlockStored":
                self._store(event, change)
            elif kind == "BlockRemoved":
                self._remove(event["block_hashes"], change)

    def _store(self, event: BlockEvent, change: _Net) -> None:
        for block, key in self._keyed(event):
            self._copies[block] = self._copies.get(block, 0) + 1
            if block not in self._keys:
                self._keys[block] = key
                self._kept.add(key)
                self._asked.discard(key)
                change.store(key)

    def _remove(self, blocks: Iterable[object], change: _Net) -> None:
        for block in blocks:
            if block not in self._keys:
                continue
            self._copies[block] -= 1
            if not self._copies[block]:
                del self._copies[block]
                key = self._keys.pop(block)
                self._kept.discard(key)
                change.evict(key)

    def _keyed(self, event: BlockEvent) -> Iterator[tuple[object, bytes]]:
        """The blocks of an event as far as their keys can be known."""
        blocks, ids, size = event["block_hashes"], event["token_ids"], event["block_size"]
        whole = size == self._block_tokens and len(ids) == size * len(blocks)
        if not blocks or not whole or event.get("lora_name") != self._lora:
            return
        extras = event.get("extra_keys") or [None] * len(blocks)
        parent = event["parent_block_hash"]
        if parent is None:
            key = self._root(event.get("extra_keys"))
            extras = [None, *extras[1:]]
        else:
            key = self._keys.get(parent)
        if key is None:
            return
        keys = follow(key, ids, size)
        for block, found, extra in zip(blocks, keys, extras, strict=True):
            if self._own(extra):
                return
            yield block, found

    def _root(self, extras: Sequence[Sequence[Any] | None] | None) -> bytes | None:
        """What the first block follows; None if that cannot be told."""
        if not extras:
            return None if self._salted else root("")
        own = self._own(extras[0])
        if len(own) > 1 or not all(isinstance(one, str) for one in own):
            return None
        return root(own[0] if own else "")

    def _own(self, extra: Sequence[Any] | None) -> list[Any]:
        """What distinguishes a block besides its tokens and the adapter, which comes first."""
        found = list(extra or ())
        return found[1:] if self._lora is not None and found[:1] == [self._lora] else found


class _Net:
    """What a message changes in the end, however often a block goes and comes within it."""

    def __init__(self, *, cleared: bool) -> None:
        self.cleared = cleared
        self._stored: dict[bytes, None] = {}
        self._evicted: dict[bytes, None] = {}

    def clear(self) -> None:
        self.cleared = True
        self._stored.clear()
        self._evicted.clear()

    def store(self, key: bytes) -> None:
        if key in self._evicted:
            del self._evicted[key]
        else:
            self._stored[key] = None

    def evict(self, key: bytes) -> None:
        if key in self._stored:
            del self._stored[key]
        else:
            self._evicted[key] = None

    def told(self) -> PrefixChange:
        return PrefixChange(tuple(self._stored), tuple(self._evicted), self.cleared)


def _events(payload: bytes) -> Iterator[BlockEvent]:
    """The events of a message: maps, or arrays with their tag first, as older versions write them.

    Raises ValueError, TypeError, LookupError for what is no such message.
    """
    import msgpack

    for event in msgpack.unpackb(payload)[1]:
        if isinstance(event, Mapping):
            yield event
        else:
            kind, *values = event
            yield {"type": kind, **dict(zip(_FIELDS.get(kind, ()), values, strict=False))}
