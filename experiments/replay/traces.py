"""Reads public traces: calls with block identities, or with lengths and arrival times alone.

Where each file comes from is in README.md here; nothing of them is in this repository.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from experiments.common import datasets
from experiments.replay.calls import (
    MOST_TURNS,
    TRACED,
    Recording,
    TracedCall,
    prompt_of_blocks,
    turn_category,
    turns,
)
from teola.errors import InputError
from teola.kv import Excerpt
from teola.runtime.values import Composite

MOONCAKE_BLOCK: Final = 512
PUBLIC_BLOCK: Final = 16
MOONCAKE_GROUP_S: Final = 3.0
"""Mooncake's arrivals are rounded down to about this."""
Row = Mapping[str, Any]


def mooncake(path: Path, *, seed: int = 0) -> Recording:
    """A trace of Mooncake's: timestamp (ms), input_length, output_length, and hash_ids of blocks of
    512 tokens. What has one timestamp is spread over its three seconds, by seed, in its order; its
    categories are turns of conversations. Raises InputError."""
    rows = list(_lines(path, "Mooncake"))
    chance, times = random.Random(f"mooncake/{seed}"), list[float]()
    for group, same in groupby(rows, key=lambda row: _group(_number(row, "timestamp", path))):
        offsets = sorted(chance.uniform(0.0, MOONCAKE_GROUP_S) for _ in same)
        times += [group * MOONCAKE_GROUP_S + offset for offset in offsets]
    found = turns(_blocks(row, path) for row in rows)
    calls = [
        _call(row, at, MOONCAKE_BLOCK, turn_category(turn), "", path)
        for row, at, turn in zip(rows, times, found, strict=True)
    ]
    return Recording(path.stem, MOONCAKE_BLOCK, _ordered(calls))


def public(path: Path) -> Recording:
    """A trace in the public format: chat_id, parent_chat_id (-1: none), timestamp (s),
    input_length, output_length, type, turn (from 1 on), and hash_ids of blocks of 16 tokens. Its
    categories are type and turn, its sessions the chats. Raises InputError."""
    rows = sorted(_lines(path, "public"), key=lambda row: _number(row, "timestamp", path))
    if rows and not all("type" in row and "turn" in row for row in rows):
        categories = [turn_category(turn) for turn in turns(_blocks(row, path) for row in rows)]
    else:
        categories = [f"{row['type']}-{min(int(row['turn']), MOST_TURNS)}" for row in rows]
    first: dict[Any, Any] = {}
    calls = []
    for row, category in zip(rows, categories, strict=True):
        chat, parent = row.get("chat_id"), row.get("parent_chat_id", -1)
        root = first[chat] = first.get(parent, parent if parent not in (-1, None) else chat)
        at = _number(row, "timestamp", path)
        session = "" if root is None else str(root)
        calls.append(_call(row, at, PUBLIC_BLOCK, category, session, path))
    return Recording(path.stem, PUBLIC_BLOCK, _ordered(calls))


def azure(path: Path) -> Recording:
    """A trace of Azure's: TIMESTAMP, ContextTokens, GeneratedTokens. It does not tell what is
    equal, so every prompt is new. Raises InputError."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [
                (
                    datasets.timestamp(row["TIMESTAMP"]),
                    max(1, int(row["ContextTokens"])),
                    max(1, int(row["GeneratedTokens"])),
                )
                for row in csv.DictReader(file)
            ]
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is no trace of Azure's: {error!r}") from None
    calls = [
        TracedCall(at, Composite.made_of([Excerpt(TRACED + number, 0, tokens)]), output)
        for number, (at, tokens, output) in enumerate(rows)
    ]
    return Recording(path.stem, PUBLIC_BLOCK, _ordered(calls))


def _group(timestamp_ms: float) -> int:
    """Groups are some milliseconds off: 5999 is the third one."""
    return round(timestamp_ms / 1000 / MOONCAKE_GROUP_S)


def _ordered(calls: Iterable[TracedCall]) -> tuple[TracedCall, ...]:
    """By arrival, the first at 0."""
    found = sorted(calls, key=lambda call: call.at)
    return tuple(call._replace(at=call.at - found[0].at) for call in found)


def _call(
    row: Row, at: float, block_tokens: int, category: str, session: str, path: Path
) -> TracedCall:
    tokens, output = _number(row, "input_length", path), _number(row, "output_length", path)
    try:
        prompt = prompt_of_blocks(_blocks(row, path), block_tokens, int(tokens))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    return TracedCall(at, prompt, max(1, int(output)), category, session)


def _blocks(row: Row, path: Path) -> Sequence[int]:
    blocks = row.get("hash_ids")
    if not isinstance(blocks, list) or not all(isinstance(block, int) for block in blocks):
        raise InputError(f"{path}: a call without a list of numbers as hash_ids: {row}")
    return blocks


def _number(row: Row, name: str, path: Path) -> float:
    found = row.get(name)
    if not isinstance(found, (int, float)) or found < 0:
        raise InputError(f"{path}: a call without a number as {name}: {row}")
    return float(found)


def _lines(path: Path, format: str) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise ValueError(f"line {number} is no object")
                    yield row
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is no trace in the {format} format: {error}") from None
