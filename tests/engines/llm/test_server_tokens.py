"""Texts whose ids a server was asked for, and for how long they are known."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from teola.engine import TextPart
from teola.graph.prompt import Role
from teola_engines.llm import server_tokens
from teola_engines.llm.server_tokens import NoTokenizer, Routes, ServerTokens
from teola_engines.openai.connection import Connection

MOST = 3


class Letters(Routes):
    """A tokenizer of letters, for which nobody connects; asked: the texts that it was asked for."""

    def __init__(self, *, begins: Sequence[int] = (), ends: Sequence[int] = ()) -> None:
        self.asked: list[str] = []
        self.begins, self.ends = begins, ends

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        self.asked.append(text)
        ids = [*map(ord, text)]
        return [*self.begins, *ids, *self.ends] if special else ids

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@pytest.fixture
def letters() -> Letters:
    return Letters()


def test_of_texts_the_ones_used_last_are_known(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there is room for, exactly; one that is used again stays."""
    monkeypatch.setattr(server_tokens, "CACHED_TEXTS", MOST)
    tokens = ServerTokens(letters, "", "completions")
    letters.asked.clear()
    assert [tokens.count(text) for text in "abc"] == [None] * MOST
    for text in ("a", "bb", "ccc"):
        assert tokens._ask(text) == [*map(ord, text)]
    assert [tokens.count(text) for text in ("a", "bb", "ccc")] == [1, 2, 3]
    tokens._ask("a")
    assert letters.asked == ["a", "bb", "ccc"]
    tokens._ask("dddd")
    assert [tokens.count(text) for text in ("a", "bb", "ccc", "dddd")] == [1, None, 3, 4]
    tokens._ask("bb")
    assert [tokens.count(text) for text in ("a", "ccc", "dddd", "bb")] == [1, None, 4, 2]
    assert letters.asked == ["a", "bb", "ccc", "dddd", "bb"]


class Slowly(dict[str, tuple[int, ...]]):
    """Lets other threads go on before it tells its first key."""

    def __iter__(self) -> Iterator[str]:
        keys = super().__iter__()
        time.sleep(1e-5)
        return keys


def test_worker_threads_may_ask_at_the_same_time(
    letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_tokens, "CACHED_TEXTS", MOST)
    tokens = ServerTokens(letters, "", "completions")
    tokens._known = Slowly(tokens._known)
    texts = [str(k % 50) for k in range(500)]
    with ThreadPoolExecutor(4) as threads:
        found = [*threads.map(tokens._ask, texts)]
    assert found == [[*map(ord, text)] for text in texts]
    assert sum(tokens.count(str(k)) is not None for k in range(50)) == MOST


@pytest.mark.parametrize("begins", [(), (1,), (1, 2)])
def test_what_a_model_wants_before_its_texts_is_found_out_and_nothing_may_follow(
    begins: Sequence[int],
) -> None:
    assert server_tokens._bos(Letters(begins=begins)) == begins
    with pytest.raises(NoTokenizer, match="wants something after"):
        server_tokens._bos(Letters(begins=begins, ends=(3,)))


# --- what a server says ---------------------------------------------------------------------------


class Tokenizing(Routes):
    """Answers each route as it is told to: a status and a body; asked: (route, fields)."""

    def __init__(self, *answers: tuple[int, Any]) -> None:
        self.answers, self.asked = [*answers], list[tuple[str, Any]]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        fields = json.loads(await reader.readexactly(int(length.partition(b":")[2])))
        self.asked.append((head.split()[1].decode(), fields))
        status, answer = self.answers.pop(0)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        writer.write(f"HTTP/1.1 {status} x\r\nconnection: close\r\n\r\n".encode() + body)
        writer.close()


async def from_a_thread(
    ask: Callable[[Routes], Any], *answers: tuple[int, Any]
) -> tuple[Any, list[tuple[str, Any]]]:
    """What a thread is told, and what was asked."""
    server = Tokenizing(*answers)
    async with await asyncio.start_server(server.serve, "127.0.0.1") as listening:
        port = listening.sockets[0].getsockname()[1]
        connection = Connection("llm", f"http://127.0.0.1:{port}", None, None, 30.0)
        await connection.open()
        try:
            routes = Routes(connection, "m")
            return await asyncio.to_thread(ask, routes), server.asked
        finally:
            await connection.close()


@pytest.mark.parametrize(
    ("ask", "answer", "told", "asked"),
    [
        (
            lambda routes: routes.encode("a b"),
            {"tokens": [1, 0]},
            [1, 0],
            ("/tokenize", {"prompt": "a b", "add_special_tokens": False}),
        ),
        (
            lambda routes: routes.encode("a b", special=True),
            {"tokens": []},
            [],
            ("/tokenize", {"prompt": "a b", "add_special_tokens": True}),
        ),
        (
            lambda routes: routes.chat(({"role": "user", "content": "a"},)),
            {"tokens": [3]},
            [3],
            (
                "/tokenize",
                {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": True},
            ),
        ),
        (
            lambda routes: routes.decode((1, 2)),
            {"prompt": "ab"},
            "ab",
            ("/detokenize", {"tokens": [1, 2]}),
        ),
    ],
)
async def test_a_server_is_asked_by_its_own_routes(
    ask: Callable[[Routes], Any], answer: Any, told: Any, asked: tuple[str, Any]
) -> None:
    found, requests = await from_a_thread(ask, (200, answer))
    assert found == told
    assert requests == [(asked[0], {"model": "m", **asked[1]})]
    nothing, requests = await from_a_thread(lambda routes: routes.encode("", special=True))
    assert (nothing, requests) == ([], [])


FORM, OTHER_FORM = "/tokenize answers in another form", "/detokenize answers in another form"


@pytest.mark.parametrize(
    ("answer", "error", "told"),
    [
        ((200, {"tokens": "1"}), NoTokenizer, FORM),
        ((200, {"tokens": [1, "2"]}), NoTokenizer, FORM),
        ((200, {"tokens": [True]}), NoTokenizer, FORM),
        ((200, {}), NoTokenizer, FORM),
        ((200, [1]), NoTokenizer, FORM),
        ((400, {}), ValueError, "/tokenize refuses the text"),
        ((404, {}), NoTokenizer, "/tokenize does not tokenise (NotFoundError)"),
        ((500, {}), NoTokenizer, "/tokenize does not tokenise (InternalServerError)"),
        ((200, b"<html>"), NoTokenizer, "/tokenize does not tokenise (JSONDecodeError)"),
    ],
)
async def test_a_server_that_does_not_tokenise_is_told_by_its_route(
    answer: tuple[int, Any], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as caught:
        await from_a_thread(lambda routes: routes.encode("a"), answer)
    assert str(caught.value).endswith(told)
    assert type(caught.value) is error
    with pytest.raises(NoTokenizer) as caught_too:
        await from_a_thread(lambda routes: routes.decode([1]), (200, {"prompt": [1]}))
    assert str(caught_too.value) == OTHER_FORM


async def silent(
    self: Tokenizing, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Until the client has gone."""
    await reader.read()
    writer.close()


async def test_a_server_that_is_silent_does_not_tokenise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_tokens, "ROUTE_LIMIT_S", 0.05)
    monkeypatch.setattr(Tokenizing, "serve", silent)
    with pytest.raises(NoTokenizer, match=r"/tokenize does not tokenise \(TimeoutError\)$"):
        await from_a_thread(lambda routes: routes.encode("a"))


class Odd(Letters):
    """One that refuses texts, or does not find its way back."""

    def __init__(self, *, refuses: bool = False, back: str = "", chats: bool = False) -> None:
        super().__init__()
        self.refuses, self.back, self.can_chat = refuses, back, chats

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        if self.refuses:
            raise ValueError("no")
        return super().encode(text, special=special)

    def decode(self, ids: Sequence[int]) -> str:
        return self.back or super().decode(ids)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if not self.can_chat:
            raise ValueError("no template")
        return [*map(ord, "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<end>")]


@pytest.mark.parametrize(
    ("routes", "api", "told"),
    [
        (Odd(refuses=True), "chat", "/tokenize refuses a text"),
        (Odd(back="Two words!"), "chat", "/tokenize and /detokenize do not agree"),
        (Odd(), "chat", "there is no chat template"),
        (Letters(ends=[3]), "chat", "the model wants something after its texts"),
    ],
)
def test_why_prompts_are_not_sent_as_ids_is_said(routes: Letters, api: str, told: str) -> None:
    with pytest.raises(NoTokenizer) as caught:
        ServerTokens(routes, "", api)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("api", "chats", "prompt"),
    [
        ("chat", True, "<user>Why?<end>"),
        ("auto", True, "<user>Why?<end>"),
        ("auto", False, "Why?"),
        ("completions", True, "Why?"),
    ],
)
async def test_a_prompt_is_rendered_where_the_server_chats(
    api: str, chats: bool, prompt: str
) -> None:
    tokens = ServerTokens(Odd(chats=chats, back=""), "/nowhere", api)
    parts = [TextPart(Role.QUESTION, "Why?")]
    expected = [*map(ord, prompt)]
    assert await tokens.ids(parts, complete=True) == expected
    assert tokens.compute(parts, complete=True) == expected
    assert tokens.splittable


@pytest.mark.parametrize("agrees", [True, False])
async def test_a_tokenizer_that_agrees_with_the_server_is_read_here(
    agrees: bool, model_folder: Path
) -> None:
    """Then the server is asked no more, and marks of a template in a text are mere text."""
    from tokenizers import Tokenizer

    file = Tokenizer.from_file(str(model_folder / "tokenizer.json"))

    class Same(Letters):
        def encode(self, text: str, *, special: bool = False) -> list[int]:
            self.asked.append(text)
            ids = file.encode(text, add_special_tokens=False).ids
            return [*ids, *([] if agrees or "naïve" not in text else ids[-1:])]

        def decode(self, ids: Sequence[int]) -> str:
            return file.decode(list(ids))

    routes = Same()
    tokens = ServerTokens(routes, str(model_folder), "completions")
    routes.asked.clear()
    parts = [TextPart(Role.INSTRUCTION, "Say <s>."), TextPart(Role.QUESTION, "Why <s>?")]
    ids = await tokens.ids(parts, complete=True)
    assert bool(routes.asked) is not agrees
    head = await tokens.ids(parts[:1], complete=False)
    assert [*head, *await tokens.ids(parts[1:], complete=True, after=parts[:1])] == ids
    mark = file.token_to_id("<s>")
    assert ids.count(mark) == (0 if agrees else 2)
    assert tokens.count("never seen") == (
        len(file.encode("never seen", add_special_tokens=False).ids) if agrees else None
    )
