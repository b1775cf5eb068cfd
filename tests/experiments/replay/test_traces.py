"""Traces are read as what they are: what is equal in them is equal, and arrives when it did."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.replay.calls import Recording, ideal, prompt_of_blocks, turns
from experiments.replay.traces import azure, mooncake, public
from teola.errors import InputError
from tests.planted import catches, edited


def row(at: float, tokens: int, blocks: list[int], **more: Any) -> dict[str, Any]:
    given = {"timestamp": at, "input_length": tokens, "output_length": 7, "hash_ids": blocks}
    return {**given, **more}


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def mooncake_rows() -> list[dict[str, Any]]:
    """Three calls at once, one of which another continues 6 s later."""
    return [
        row(0, 1100, [0, 1, 2]),
        row(0, 1500, [0, 1, 3]),
        row(0, 512, [0]),
        row(5999, 2000, [0, 1, 4, 5]),
    ]


def test_prompts_of_mooncake_share_their_blocks(tmp_path: Path) -> None:
    found = mooncake(written(tmp_path, *mooncake_rows()))
    assert found.block_tokens == 512
    assert [(int(call.prompt), call.output) for call in found.calls] == [
        (1100, 7),
        (1500, 7),
        (512, 7),
        (2000, 7),
    ]
    keys = [call.prompt.keys(512, 0) for call in found.calls]
    assert [len(one) for one in keys] == [2, 2, 1, 3]
    assert keys[0] == keys[1] == keys[3][:2]
    assert keys[2] == keys[0][:1]
    assert ideal(found.calls, 512) == (2 + 1 + 2) / (3 + 3 + 1 + 4)


@catches(
    "groups-not-spread",
    "calls of one group come at once",
    edited(mooncake, "group * MOONCAKE_GROUP_S + offset", "group * MOONCAKE_GROUP_S"),
)
def test_a_group_is_spread_over_its_three_seconds_by_seed(tmp_path: Path) -> None:
    path = written(tmp_path, *mooncake_rows())
    times = [call.at for call in mooncake(path, seed=1).calls]
    assert times[0] == 0.0  # the trace begins with its first call
    assert times == sorted(set(times))
    assert times[2] < 3.0
    assert 3.0 < times[3] < 9.0
    assert times == [call.at for call in mooncake(path, seed=1).calls]
    assert times != [call.at for call in mooncake(path, seed=2).calls]


def test_the_order_within_a_group_is_the_trace_s(tmp_path: Path) -> None:
    rows = [row(3000, 512 * 2 + k, [0, k, 100 + k]) for k in range(1, 30)]
    found = mooncake(written(tmp_path, *rows))
    assert [int(call.prompt) for call in found.calls] == [512 * 2 + k for k in range(1, 30)]


@catches(
    "last-block-counts",
    "a call's last block must be found again, too",
    edited(turns, "latest[without_last] =", "latest[key] ="),
)
@catches(
    "one-block-is-enough",
    "calls that only begin as all of the service do go on with one another",
    edited(turns, "len(blocks) >= LEAST_BLOCKS + 1", "len(blocks) > 1"),
)
def test_a_turn_goes_on_with_all_but_the_last_block() -> None:
    first, second, third = [0, 1, 2], [0, 1, 3, 4], [0, 1, 3, 5, 6]
    assert [*turns([first, second, third])] == [1, 2, 3]
    assert [*turns([[0, 1], [0, 2], [0, 1, 2]])] == [1, 1, 1]
    assert [*turns([first, second, [0, 1, 7]])] == [1, 2, 2]  # it goes on with `first`
    assert [*turns([third, first])] == [1, 1]


def test_it_goes_on_with_the_latest_such_call() -> None:
    longer_ago = [0, 1, 2, 3]  # as its second turn would
    assert [*turns([[0, 1, 9], longer_ago, [0, 1, 8], [0, 1, 2, 4]])] == [1, 2, 2, 3]


def test_the_public_format_tells_types_and_turns(tmp_path: Path) -> None:
    chat = {"chat_id": 5, "parent_chat_id": -1, "type": "text", "turn": 1}
    again = {"chat_id": 6, "parent_chat_id": 5, "type": "text", "turn": 2}
    later = {"chat_id": 8, "parent_chat_id": 6, "type": "text", "turn": 9}
    rows = [row(10.0, 40, [1, 2, 3], **chat), row(12.5, 64, [1, 2, 4, 5], **again)]
    found = public(written(tmp_path, row(13.0, 10, [1], **later), *rows))
    assert found.block_tokens == 16
    assert [call.at for call in found.calls] == [0.0, 2.5, 3.0]
    assert [call.category for call in found.calls] == ["text-1", "text-2", "text-5"]
    assert [call.session for call in found.calls] == ["5", "5", "5"]
    assert [len(call.prompt.keys(16, 0)) for call in found.calls] == [2, 4, 0]


def test_a_public_trace_without_types_has_turns(tmp_path: Path) -> None:
    rows = [row(1.0, 40, [1, 2, 3]), row(2.0, 60, [1, 2, 4, 5])]
    assert [call.category for call in public(written(tmp_path, *rows)).calls] == [
        "turn-1",
        "turn-2",
    ]


def test_azure_s_prompts_share_nothing(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    lines = ["2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.6805900,374,9"]
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(lines))
    found = azure(path)
    assert [(call.at, int(call.prompt), call.output) for call in found.calls] == [
        (0.0, 374, 44),
        (4.0, 374, 9),
    ]
    assert ideal(found.calls, 16) == 0.0


def test_calls_can_come_faster_or_at_other_times(tmp_path: Path) -> None:
    found = mooncake(written(tmp_path, *mooncake_rows()))
    assert found.faster(2.0).seconds == found.seconds / 2
    assert [call.at for call in found.arriving([5.0, 1.0]).calls] == [1.0, 5.0]
    assert found.first(2).calls == found.calls[:2]


@pytest.mark.parametrize("reader", [mooncake, public])
@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        json.dumps(row(1, 1000, [1])),
        json.dumps(row(1, 0, [])),
        json.dumps({**row(1, 512, [1]), "hash_ids": "1"}),
        json.dumps({**row(1, 512, [1]), "timestamp": None}),
    ],
)
def test_what_is_no_trace_is_refused(
    tmp_path: Path, reader: Callable[[Path], Recording], line: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=r"bad\.jsonl"):
        reader(path)


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    for reader in (mooncake, public, azure):
        with pytest.raises(InputError, match="absent"):
            reader(tmp_path / "absent")


def test_a_prompt_has_as_many_blocks_as_it_takes() -> None:
    assert prompt_of_blocks([1, 2], 16, 17) == 17
    for blocks, tokens in (([1], 17), ([1, 2], 16), ([], 0)):
        with pytest.raises(ValueError, match="blocks of 16"):
            prompt_of_blocks(blocks, 16, tokens)
