"""Texts whose ids a server was asked for, and for how long they are known."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from teola_engines.llm import server_tokens
from teola_engines.llm.server_tokens import NoTokenizer, Routes, ServerTokens

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


@pytest.mark.parametrize("begins", [(), (1,), (1, 2)])
def test_what_a_model_wants_before_its_texts_is_found_out_and_nothing_may_follow(
    begins: Sequence[int],
) -> None:
    assert server_tokens._bos(Letters(begins=begins)) == begins
    with pytest.raises(NoTokenizer, match="wants something after"):
        server_tokens._bos(Letters(begins=begins, ends=(3,)))
