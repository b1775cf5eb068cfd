"""Wide tables, by seed: what repeats in a row depends on what kind of row it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

Rows = list[tuple[str, ...]]


def _words(chance: Random, characters: int) -> str:
    found = ""
    while len(found) < characters:
        found += "".join(chance.choices("abcdefghijklmnoprstuvw", k=chance.randint(2, 9))) + " "
    return found[:characters].strip()


def kinds(rows: int, chance: Random) -> Rows:
    """10 columns. A product: its kind says which of its columns are those of a series."""
    series = [[_words(chance, 60) for _ in range(max(2, rows // 60))] for _ in range(4)]
    made = []
    for at in range(rows):
        kind = chance.randrange(4)
        texts = [
            chance.choice(series[column]) if column == kind else _words(chance, 60)
            for column in range(4)
        ]
        made.append(
            (
                str(at),
                *texts,
                f"kind {kind}",
                str(chance.randrange(50)),
                str(chance.randrange(10_000)),
                chance.choice(("new", "used")),
                _words(chance, 20),
            )
        )
    return made


def donors(rows: int, chance: Random) -> Rows:
    """15 columns. A payment: people pay often, firms once; of each their address and work."""
    people = [
        (_words(chance, 22), _words(chance, 28), _words(chance, 12), _words(chance, 24))
        for _ in range(max(2, rows // 12))
    ]
    receivers = [(_words(chance, 34), _words(chance, 10)) for _ in range(40)]
    made = []
    for at in range(rows):
        receiver = receivers[min(39, int(chance.expovariate(0.2)))]
        if chance.random() < 0.6:
            person = people[min(len(people) - 1, int(chance.expovariate(3 / len(people))))]
        else:
            person = tuple(_words(chance, length) for length in (22, 28, 12, 24))
        made.append(
            (
                f"P{at:08d}",
                *receiver,
                *person,
                f"2024-{chance.randint(1, 12):02d}-{chance.randint(1, 28):02d}",
                str(chance.choice((25, 50, 100, 250, chance.randrange(5000)))),
                chance.choice(("primary", "general", "")),
                chance.choice(("US", "US", "US", "")),
                _words(chance, 8) if chance.random() < 0.1 else "",
                chance.choice(("cheque", "card", "")),
                chance.choice(("IND", "ORG")),
                f"F-{chance.randrange(rows)}",
            )
        )
    return made


def tickets(rows: int, chance: Random) -> Rows:
    """8 columns. A message: some are answers in one of many threads, others stand alone."""
    threads = [(_words(chance, 50), _words(chance, 90)) for _ in range(max(2, rows // 8))]
    templates = [_words(chance, 160) for _ in range(max(2, rows // 25))]
    made = []
    for at in range(rows):
        threaded = chance.random() < 0.5
        title, quoted = chance.choice(threads) if threaded else (_words(chance, 50), "")
        body = _words(chance, 160) if threaded else chance.choice(templates)
        made.append(
            (
                str(at),
                title,
                quoted,
                body,
                chance.choice(("mail", "chat", "web")),
                chance.choice(("open", "closed")),
                f"agent {chance.randrange(30)}",
                f"{chance.randrange(24):02d}:{chance.randrange(60):02d}",
            )
        )
    return made


TABLES: Final[Mapping[str, Callable[[int, Random], Rows]]] = {
    "kinds": kinds,
    "donors": donors,
    "tickets": tickets,
}
"""By name: a function of the number of rows."""
