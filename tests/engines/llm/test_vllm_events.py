"""A vLLM's events read into our keys: recorded ones, and what may go wrong with them."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from teola.engine import PrefixChange
from teola_engines.llm import block_keys
from teola_engines.llm.vllm_events import CLEARED, StoredBlocks
from tests.planted import catches, edited

RECORDED = [
    "93cb3ff0000000000000918aa474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573920b0cb170"
    "6172656e745f626c6f636b5f68617368c0a9746f6b656e5f696473986465666768696a6baa626c6f636b5f73697a65"
    "04a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b6579739291a673"
    "616c742d61c0a967726f75705f6964780000",
    "93cb4000000000000000928aa474797065ab426c6f636b53746f726564ac626c6f636b5f686173686573910db17061"
    "72656e745f626c6f636b5f686173680ca9746f6b656e5f696473946c6d6e6faa626c6f636b5f73697a6504a76c6f72"
    "615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797391c0a967726f75705f"
    "6964780084a474797065ac426c6f636b52656d6f766564ac626c6f636b5f686173686573910da66d656469756da347"
    "5055a967726f75705f6964780000",
    "93cb4008000000000000928aa474797065ab426c6f636b53746f726564ac626c6f636b5f6861736865739115b17061"
    "72656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739464656667aa626c6f636b5f73697a6504a76c6f72"
    "615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b6579739191a673616c742d62"
    "a967726f75705f6964780084a474797065ac426c6f636b52656d6f766564ac626c6f636b5f686173686573910ca66d"
    "656469756da3475055a967726f75705f6964780000",
    "93cb40100000000000009181a474797065b0416c6c426c6f636b73436c656172656400",
]
"""Payloads that vLLM 0.32's own publisher sent: two blocks of four tokens for `salt-a`; a third
one, gone again; one for `salt-b` that holds what the first does, and the second one gone; an end to
all of them."""
IDS = list(range(100, 112))
A, B = (block_keys.of_ids(IDS, 4, salt).blocks for salt in ("salt-a", "salt-b"))


def stored(
    blocks: list[Any], ids: list[int], *, parent: Any = None, extra: Any = ("salt-a",), **more: Any
) -> dict[str, Any]:
    extras = [extra if parent is None else None, *[None] * (len(blocks) - 1)]
    return {
        "type": "BlockStored",
        "block_hashes": blocks,
        "parent_block_hash": parent,
        "token_ids": ids,
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": extras,
        "group_idx": 0,
    } | more


def removed(*blocks: Any, **more: Any) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": blocks, "medium": "GPU", "group_idx": 0} | more


def message(*events: Any) -> bytes:
    found: bytes = msgpack.packb([1.0, list(events), 0])
    return found


def reading(blocks: StoredBlocks, *messages: bytes, first: int = 0) -> list[PrefixChange]:
    return [blocks.read(i, payload) for i, payload in enumerate(messages, first)]


@catches(
    "events-salt",
    "a block's salt is not read",
    edited(StoredBlocks._root, 'own[0] if own else ""', '""'),
)
def test_what_vllm_sends() -> None:
    found = reading(StoredBlocks(4), *map(bytes.fromhex, RECORDED))
    assert found == [
        PrefixChange(stored=A[:2]),
        PrefixChange(),
        PrefixChange(stored=B[:1], evicted=A[1:2]),
        CLEARED,
    ]


def test_hashes_of_any_kind_and_older_forms() -> None:
    """Older versions write arrays; hashes are integers of 64 bits, or the whole digest."""
    block = b"\xff" * 32
    event = list(stored([block], IDS[:4]).values())
    gone = ["BlockRemoved", [block], "GPU"]
    assert reading(
        StoredBlocks(4), message(event), message(gone), message(["AllBlocksCleared"])
    ) == [
        PrefixChange(stored=A[:1]),
        PrefixChange(evicted=A[:1]),
        CLEARED,
    ]
    assert reading(StoredBlocks(4), message(stored([2**64 - 1], IDS[:4])))[0].stored == A[:1]


@catches(
    "events-gap",
    "a lost message is not noticed",
    edited(StoredBlocks.read, "self._next not in (None, sequence)", "False"),
)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_lost_message_clears_and_so_does_a_restart(number: int) -> None:
    blocks = StoredBlocks(4)
    reading(blocks, message(stored([1, 2], IDS[:8])), message(), first=0)
    assert blocks.read(number, message(stored([3], IDS[8:], parent=2))) == CLEARED
    assert len(blocks) == 0, "nothing is known of what it follows"
    found = blocks.read(number + 1, message(stored([1], IDS[:4])))
    assert found == PrefixChange(stored=A[:1])


@catches(
    "events-parent",
    "a block follows none",
    edited(StoredBlocks._keyed, "self._keys.get(parent)", 'root("salt-a")'),
)
def test_blocks_follow_each_other_over_messages() -> None:
    first, second = stored([1, 2], IDS[:8]), stored([3], IDS[8:], parent=2)
    found = reading(StoredBlocks(4), message(first), message(second), message(removed(3, 2)))
    assert [change.stored for change in found] == [A[:2], A[2:], ()]
    assert found[2].evicted == (A[2], A[1])


def test_what_was_stored_before_anybody_listened() -> None:
    blocks = StoredBlocks(4)
    found = reading(
        blocks,
        message(stored([2], IDS[4:8], parent=1), removed(1)),
        message(stored([3], IDS[8:], parent=2), removed(2)),
        first=40,
    )
    assert found == [PrefixChange()] * 2


@catches(
    "events-blind",
    "who missed something does not ask",
    edited(StoredBlocks._forget, "self._blind = blind", "self._blind = False"),
)
@catches(
    "events-asked",
    "what is reported twice is asked for twice",
    edited(StoredBlocks.missed, "self._asked.add(first)", "pass"),
)
def test_what_was_missed_is_asked_for_once() -> None:
    blocks, fresh = StoredBlocks(4), StoredBlocks(4)
    assert blocks.missed(A[0])
    assert not blocks.missed(A[0])
    reading(blocks, message(stored([1], IDS[:4]), removed(1)), first=7)
    assert blocks.missed(A[0]), "gone again"
    reading(fresh, message(stored([1], IDS[:4])))
    assert not any(map(fresh.missed, (A[0], B[0]))), "all was heard"
    reading(fresh, message(), first=5)
    assert fresh.missed(B[0]), "not all"
    reading(fresh, message({"type": "AllBlocksCleared"}), first=6)
    assert not fresh.missed(A[0]), "there is nothing"
    fresh.clear()
    assert fresh.missed(A[0])


@catches(
    "events-copies",
    "one copy's end is taken for the end of all",
    edited(StoredBlocks._remove, "if not self._copies[block]:", "if True:"),
)
def test_a_block_has_gone_with_its_last_copy() -> None:
    twice = message(stored([1], IDS[:4]), stored([1], IDS[:4]))
    found = reading(StoredBlocks(4), twice, message(removed(1)), message(removed(1)))
    assert found == [PrefixChange(stored=A[:1]), PrefixChange(), PrefixChange(evicted=A[:1])]


def test_a_message_tells_what_is_so_in_the_end() -> None:
    one, two = stored([1], IDS[:4]), stored([2], IDS[4:8], parent=1)
    again = reading(StoredBlocks(4), message(one), message(removed(1), one, two))[1]
    assert again == PrefixChange(stored=A[1:2])
    after = reading(StoredBlocks(4), message(one, two), message({"type": "AllBlocksCleared"}, one))
    assert after[1] == PrefixChange(stored=A[:1], cleared=True)


@pytest.mark.parametrize(
    "event",
    [
        stored([1], IDS[:8], block_size=8),
        stored([1], IDS[:8]),
        stored([1], IDS[:4], medium="CPU"),
        stored([1], IDS[:4], group_idx=1),
        stored([1], IDS[:4], lora_name="adapter", extra=("adapter", "salt-a")),
        stored([1], IDS[:4], extra=([7, 0], "salt-a")),
        stored([1], IDS[:4], extra=("salt-a", b"embedding")),
        stored([1], IDS[:4], extra_keys=None),
        stored([], []),
        {"type": "SomethingNew", "at": 1},
    ],
)
def test_blocks_of_which_nothing_can_be_said(event: dict[str, Any]) -> None:
    follows = stored([2], IDS[4:8], parent=1)
    assert reading(StoredBlocks(4), message(event, follows)) == [PrefixChange()]


def test_blocks_up_to_an_image() -> None:
    extras = [["salt-a"], [["image", 5]], None]
    assert reading(StoredBlocks(4), message(stored([1, 2, 3], IDS, extra_keys=extras))) == [
        PrefixChange(stored=A[:1])
    ]


def test_blocks_of_the_adapter_that_is_served() -> None:
    own = stored([1, 2], IDS[:8], lora_name="x", extra_keys=[["x", "salt-a"], ["x"]])
    base = stored([3], IDS[:4])
    found = reading(StoredBlocks(4, lora="x"), message(own), message(base))
    assert found == [PrefixChange(stored=A[:2]), PrefixChange()]


def test_a_server_that_is_sent_no_salts() -> None:
    event = stored([1], IDS[:4], extra_keys=None)
    assert reading(StoredBlocks(4, salted=False), message(event)) == [
        PrefixChange(stored=block_keys.of_ids(IDS[:4], 4, "").blocks)
    ]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"no message",
        message()[:-1],
        msgpack.packb(7),
        msgpack.packb([1.0]),
        message(7),
        message({}),
        message(stored([1], IDS[:4], token_ids="text")),
        message(stored([1], IDS[:4], extra_keys=[7])),
        message(stored([1], IDS[:4], extra_keys=[None, None])),
        message(stored([1], IDS[:4], token_ids=[2**64 - 1] * 4)),
        message(stored([[1]], IDS[:4])),
    ],
)
def test_what_cannot_be_read_is_lost(payload: bytes) -> None:
    blocks = StoredBlocks(4)
    assert reading(blocks, message(stored([1], IDS[:4])), payload)[1] == CLEARED
    assert len(blocks) == 0
    assert blocks.read(2, message(stored([1], IDS[:4]))).stored == A[:1]


def test_more_blocks_than_there_are() -> None:
    """As where a client has vLLM report reused blocks again, which look like copies."""
    blocks = StoredBlocks(4, limit=2)
    assert (
        reading(blocks, message(stored([1, 2], IDS[:8])), message(stored([3], IDS[8:], parent=2)))[
            1
        ]
        == CLEARED
    )


def test_random_lives_of_blocks() -> None:
    """What is told agrees with what is kept, counted with its copies."""
    rng = random.Random(3)
    for _ in range(50):
        blocks, told, copies = StoredBlocks(4), set[object](), dict[int, int]()
        for number in range(60):
            events = []
            for _ in range(rng.randint(0, 3)):
                if copies and rng.random() < 0.5:
                    gone = rng.choice(list(copies))
                    copies[gone] -= 1
                    if not copies[gone]:
                        del copies[gone]
                    events.append(removed(gone))
                elif rng.random() < 0.05:
                    copies.clear()
                    events.append({"type": "AllBlocksCleared"})
                else:
                    new = rng.randint(0, 9)
                    copies[new] = copies.get(new, 0) + 1
                    events.append(stored([new], [new] * 4))
            change = blocks.read(number, message(*events))
            told = set() if change.cleared else told
            assert told.issuperset(change.evicted)
            told -= set(change.evicted)
            assert told.isdisjoint(change.stored)
            told |= set(change.stored)
            assert told == {block_keys.of_ids([one] * 4, 4, "salt-a").blocks[0] for one in copies}


@pytest.mark.parametrize("seed", range(6))
def test_after_each_loss_what_may_be_kept_is_asked_for_again(seed: int) -> None:
    """Lost messages, restarts, an end to all, and connections that were begun anew: of each key it
    is written down beside it when it was told last, and when it was asked for."""
    chance = random.Random(seed)
    keys = {n: block_keys.of_ids([n] * 4, 4, "salt-a").blocks[0] for n in range(6)}
    blocks, told, known = StoredBlocks(4), dict[int, str](), False
    number, lost = chance.choice((0, 7)), True  # nothing is heard of what was before
    for _ in range(150):
        match chance.randrange(8):
            case 0:
                assert blocks.clear() == CLEARED
                told, known, lost = {}, False, True
            case 1 if not lost:
                number += 2  # one is lost
                change = blocks.read(number, message())
                assert change.cleared
                told, known, number = {}, False, number + 1
            case 2:
                change = blocks.read(0, message())
                assert change.cleared == (not lost and number != 0)
                if change.cleared:
                    told = {}
                known, lost, number = True, False, 1
            case 3:
                blocks.read(number, message({"type": "AllBlocksCleared"}))
                told, known, lost, number = {}, True, False, number + 1
            case 4 | 5:
                n = chance.choice(list(keys))
                kept = told.get(n) == "kept"
                blocks.read(number, message(removed(n) if kept else stored([n], [n] * 4)))
                told[n] = "gone" if kept else "kept"
                known, lost, number = known or number == 0, False, number + 1
            case _:
                n = chance.choice(list(keys))
                wanted = not known and told.get(n) not in ("kept", "asked")
                assert blocks.missed(keys[n]) == wanted
                if wanted:
                    told[n] = "asked"
