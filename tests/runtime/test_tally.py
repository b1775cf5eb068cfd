"""What a query may still grow and holds, against adding up all that happened."""

from __future__ import annotations

import random

import pytest

from teola.errors import QueryFailed
from teola.runtime.store import Store
from teola.runtime.tally import DEEPEST, Tally
from tests.planted import catches, edited
from tests.schedule.plans import plan, tool


def grows(seed: int, steps: int = 60) -> None:
    """Parts that begin and end, bytes that are held and let go."""
    draw = random.Random(seed)
    parts, primitives, size = (draw.randint(0, most) for most in (30, 12, 20))
    tally = Tally(parts, primitives, size)
    begun, running, held = list[int](), list[int](), list[int]()
    for _ in range(steps):
        kind = draw.choice(["grow", "grow", "shrink", "hold", "let go"])
        if kind == "grow":
            more, depth = draw.randint(1, 6), draw.choice([1, 2, DEEPEST, DEEPEST + 1])
            refused = [
                word
                for word, too_much in (
                    ("parts than", len(begun) + 1 > parts),
                    ("primitives at once", sum(running) + more > primitives),
                    ("inside each other", depth > DEEPEST),
                )
                if too_much
            ]
            assert tally.fits(more) == (sum(running) + more <= primitives)
            if refused:
                with pytest.raises(QueryFailed, match=f"'c' grows to more .*{refused[0]}"):
                    tally.grow("c", more, depth)
            else:
                tally.grow("c", more, depth)
                begun.append(more)
                running.append(more)
        elif kind == "shrink" and running:
            tally.shrink(running.pop(draw.randrange(len(running))))
        elif kind == "hold":
            held.append(draw.randint(0, 6))
            if sum(held) > size:
                with pytest.raises(QueryFailed, match="'c' holds more than"):
                    tally.hold("c", held[-1])
            else:
                tally.hold("c", held[-1])
        elif kind == "let go" and held:
            tally.held_bytes -= held.pop(draw.randrange(len(held)))
        assert tally.parts == parts - len(begun)
        assert tally.primitives == primitives - sum(running)
        assert tally.held_bytes == sum(held)


@catches(
    "one-part-more",
    "a query has one part more than it may have",
    edited(Tally.grow, "self.parts < 1", "self.parts < 0"),
)
@catches(
    "one-part-less",
    "a query has one part less than it may have",
    edited(Tally.grow, "self.parts < 1", "self.parts <= 1"),
)
@catches(
    "primitives-full",
    "a part that fills what is left does not begin",
    edited(Tally.fits, "<=", "<"),
)
@catches(
    "deepest-refused",
    "the deepest part does not begin",
    edited(Tally.grow, "depth > DEEPEST", "depth >= DEEPEST"),
)
@catches(
    "ended-parts-run",
    "a part that has ended counts as running",
    edited(Tally.shrink, "self.primitives += primitives", "pass"),
)
@catches(
    "ended-parts-begin-again",
    "a part that has ended may be grown once more",
    edited(
        Tally.shrink,
        "self.primitives += primitives",
        "self.primitives += primitives; self.parts += 1",
    ),
)
@catches(
    "bytes-full",
    "a query that holds just as much as it may fails",
    edited(Tally.hold, "self.held_bytes > self.bytes", "self.held_bytes >= self.bytes"),
)
def test_a_tally_is_what_all_that_happened_adds_up_to() -> None:
    for seed in range(150):
        grows(seed)


def test_what_is_refused_counts_nothing() -> None:
    tally = Tally(parts=2, primitives=5)
    with pytest.raises(QueryFailed):
        tally.grow("c", 6, 1)
    with pytest.raises(QueryFailed):
        tally.grow("c", 5, DEEPEST + 1)
    tally.grow("c", 5, DEEPEST)
    tally.shrink(5)
    tally.grow("c", 5, 1)


@catches(
    "part-keeps-all",
    "what a part held counts for its query when the part has ended",
    edited(Store.close, "self._tally.held_bytes -= self.held_bytes", "pass"),
)
@catches(
    "released-for-the-part",
    "what a part releases counts for its query on",
    edited(Store.release, "self._tally.held_bytes -= size", "pass"),
)
@catches(
    "part-for-itself",
    "what a part holds does not count for its query",
    edited(Store.put_slice, "self._tally.held_bytes += size", "pass"),
)
@catches(
    "last-slice-only",
    "of a list that came in slices the last one counts",
    edited(Store.put_slice, "self._bytes.get(i, 0) + size", "size"),
)
def test_a_tally_holds_what_all_parts_hold() -> None:
    """A query and two parts of it, whose values are texts of one byte a character."""
    made = plan(*(tool(id) for id in "abcd"))
    for seed in range(20):
        draw, tally = random.Random(seed), Tally()
        stores = [Store(made, {}, tally=tally) for _ in range(3)]
        held: list[dict[int, list[str]]] = [{} for _ in stores]
        come = [[0] * 4 for _ in stores]
        dropped = set[tuple[int, int]]()
        for _ in range(80):
            k, i = draw.randrange(3), draw.randrange(4)
            kind = draw.choice(["slice", "slice", "slice", "release", "drop", "close"])
            if kind == "slice" and come[k][i] < 4:
                texts = ["x" * draw.randint(0, 9) for _ in range(draw.choice([1, 2]))]
                lo = come[k][i]
                texts = texts[: 4 - lo]
                stores[k].put_slice(i, lo, lo + len(texts), 4, {"out": texts})
                come[k][i] += len(texts)
                if (k, i) not in dropped:
                    held[k].setdefault(i, []).extend(texts)
            elif kind == "release" and come[k][i] == 4:
                stores[k].release(i)
                held[k].pop(i, None)
            elif kind == "drop" and draw.random() < 0.2:
                stores[k].drop(i)
                dropped.add((k, i))
                held[k].pop(i, None)
            elif kind == "close" and draw.random() < 0.05:
                stores[k].close()
                held[k] = {}
                come[k] = [4] * 4
            lengths = [sum(len(text) for texts in one.values() for text in texts) for one in held]
            assert [one.held_bytes for one in stores] == lengths
            assert tally.held_bytes == sum(lengths)
