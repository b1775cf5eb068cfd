import json

import pytest

from teola.errors import EngineError
from teola_engines.openai import wire


async def pieces(*chunks):
    for chunk in chunks:
        yield chunk


async def test_events_survive_every_cut():
    whole = 'data: {"t": "é\u2028\x85"}\r\n: ping\n\ndata:2\nevent: x\ndata: [DONE]\n\n'.encode()
    for size in (1, 2, 3, 7, len(whole)):
        chunks = [whole[i : i + size] for i in range(0, len(whole), size)]
        found = [data async for data in wire.events(pieces(*chunks))]
        assert found == ['{"t": "é\u2028\x85"}', "2", "[DONE]"]


async def test_a_line_without_end_is_given_up():
    with pytest.raises(ValueError, match="without end"):
        async for _ in wire.events(pieces(*[b"x" * 100_000] * 20)):
            pass


@pytest.mark.parametrize("event", [3, {}, {"choices": 3}, {"choices": [3]}, {"choices": None}])
def test_events_of_another_kind_are_no_pieces(event):
    with pytest.raises(ValueError, match="no"):
        wire.read_piece(json.dumps(event), "s", "m")


@pytest.mark.parametrize(
    ("reason", "retryable", "says"),
    [("content_filter", False, "withheld"), ("abort", True, r"gave the answer up \(abort\)")],
)
def test_an_answer_that_ends_otherwise_is_an_error(reason, retryable, says):
    with pytest.raises(EngineError, match=says) as caught:
        wire.finish_reason(reason, "s")
    assert caught.value.retryable is retryable
    assert wire.finish_reason("tool_calls", "s") == "stop"
