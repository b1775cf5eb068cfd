"""How large and how slow a body may be, and how much a query may ask for: exactly; no server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from teola import App, Generate, Runtime
from teola.errors import InputError
from teola.serve.intake import bounds, limits
from teola.serve.intake.bounds import Bounded, _Body
from teola.serve.intake.limits import QueryLimits
from teola.serve.problems import TooLarge, TooSlow
from tests.planted import catches, edited

Message = dict[str, Any]


def parts(*sizes: int) -> list[Message]:
    """A body in pieces of so many bytes."""
    last = len(sizes) - 1
    return [
        {"type": "http.request", "body": b"x" * size, "more_body": at < last}
        for at, size in enumerate(sizes)
    ]


class Wire:
    """What comes in, one message at a time, and what goes out."""

    def __init__(self, *messages: Message) -> None:
        self.coming, self.sent = list(messages), list[Message]()

    async def receive(self) -> Message:
        if not self.coming:
            await asyncio.sleep(3600)
        return self.coming.pop(0)

    async def send(self, message: Any) -> None:
        self.sent.append(message)


@pytest.mark.parametrize("cut", [(10,), (9, 1), (4, 0, 6), (0, 10, 0)])
async def test_a_body_may_be_as_long_as_is_taken(cut: tuple[int, ...]) -> None:
    for more in (0, 1):
        wire = Wire(*parts(*cut[:-1], cut[-1] + more), {"type": "http.disconnect"})
        body = _Body(wire.receive, wire.send, 10, empty=False)
        if more:
            for _ in cut[:-1]:
                await body.receive()
            with pytest.raises(TooLarge):
                await body.receive()
        else:
            assert sum([len((await body.receive())["body"]) for _ in cut]) == 10
            assert (await body.receive())["type"] == "http.disconnect", "what befalls it later"


async def test_a_large_body_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE_S", 0.05)
    monkeypatch.setattr(bounds, "SLOWEST", 100)

    async def slowly(first: int) -> _Body:
        wire = Wire(*parts(first, 0)[:1])
        body = _Body(wire.receive, wire.send, 10**6, empty=False)
        await body.receive()
        with pytest.raises(TooSlow):
            await body.receive()
        return body

    loop = asyncio.get_running_loop()
    began = loop.time()
    await slowly(0)
    assert loop.time() - began >= 0.05
    began = loop.time()
    await slowly(10)
    assert loop.time() - began >= 0.15


@catches(
    "answers-lost",
    "an answer ends before the body that was refused has been read",
    edited(_Body.send, "while not self._whole:", "while False:"),
)
async def test_what_is_left_of_a_body_is_read_before_the_answer_ends() -> None:
    wire = Wire(*parts(1, 2, 3))
    body = _Body(wire.receive, wire.send, 0, empty=False)
    with pytest.raises(TooLarge):
        await body.receive()
    await body.send({"type": "http.response.start", "status": 413})
    await body.send({"type": "http.response.body", "body": b"no"})
    assert wire.coming == []
    assert [one.get("more_body") for one in wire.sent] == [None, True, None]
    assert [one.get("body") for one in wire.sent] == [None, b"no", b""]
    whole = Wire()
    body = _Body(whole.receive, whole.send, 0, empty=True)
    await body.send({"type": "http.response.body", "body": b"yes"})
    assert whole.sent == [{"type": "http.response.body", "body": b"yes"}]


@pytest.mark.parametrize("form", [False, True])
async def test_a_body_that_is_announced_too_long_is_refused_unread(
    form: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "JSON_BYTES", 10)
    monkeypatch.setattr(bounds, "FORM_BYTES", 20)
    reached, refused = list[bytes](), list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append((await receive()).get("body", b""))

    bounded = Bounded(app, lambda scope: form, lambda problem, scope: refused.append(problem))
    kind = b"multipart/form-data; boundary=b"
    for announced in (10, 11, 20, 21):
        headers = [(b"content-length", b"%d" % announced), (b"content-type", kind)]
        wire = Wire(*parts(announced))
        scope: Any = {"type": "http", "path": "/v1/queries", "headers": headers, "method": "POST"}
        await bounded(scope, wire.receive, wire.send)  # type: ignore[arg-type]
        fits = announced <= (20 if form else 10)
        assert (len(reached[-1:]) and len(reached[-1]) == announced) == fits
        assert [one["status"] for one in wire.sent if "status" in one] == ([] if fits else [413])
    assert len(refused) == (1 if form else 3)
    await bounded({"type": "lifespan"}, Wire({"type": "lifespan.startup"}).receive, wire.send)  # type: ignore[arg-type]
    assert reached[-1] == b""


def test_a_query_may_ask_for_exactly_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LISTED", 3)
    with Runtime({}, learn=False) as runtime:
        kinds = {"question": "text", "topics": "texts"}
        gives = {"inputs": kinds, "outputs": {"answer": "answer"}}
        app = App("a", Generate(mode="simple"), runtime=runtime, **gives)
        bound = QueryLimits(prompt_tokens=10, output_tokens=7, override_characters=40)

        def takes(overrides: Any = None, **inputs: Any) -> bool:
            try:
                bound.check(app, inputs, overrides or {})
            except InputError:
                return False
            return True

        assert takes(topics=["a"] * 3)
        assert not takes(topics=["a"] * 4)
        for characters in range(30, 50):
            tokens = limits.tokens_of("x" * characters)
            assert takes(question="x" * characters) is (tokens <= 10)
        half = "x" * 16
        assert takes(question=half, topics=[half]) is (2 * limits.tokens_of(half) <= 10)
        assert takes({"generate.max_tokens": 7})
        assert not takes({"generate.max_tokens": 8})
        for length in range(1, 40):
            overrides = {"generate.instruction": "x" * length}
            assert takes(overrides) is (len(json.dumps(overrides)) <= 40)
        assert not takes({"generate.ignore_eos": True})
