"""How much of a conversation, and of calls and results, an agent's prompt has room for."""

from __future__ import annotations

import pytest

from teola.workflow.components.room import SAMPLED, recent_entries, recent_lines, sampled
from tests.planted import catches, edited


def words(text: str) -> int:
    return len(text.split())


def test_of_a_long_conversation_the_end_is_read() -> None:
    lines = "\n".join(f"User: {n} and more words" for n in range(20))
    kept = recent_lines(lines, 24, words)
    assert kept.endswith("User: 19 and more words")
    assert "User: 1 " not in kept
    assert words(kept) <= 24
    longer = recent_lines(f"{lines}\nUser: 20 and more words", 24, words)
    assert longer.split("\n")[0] in kept
    assert recent_lines("one two three four", 2, len) == "ur"


def test_lines_are_left_out_in_steps_of_half_of_what_may_stay() -> None:
    """So that a prompt begins like the one before. A line has two tokens, with its end."""
    first = {}
    for count in range(18, 33):
        kept = recent_lines("\n".join(f"{n}" for n in range(count)), 20, words)
        lines = kept.split("\n")
        assert lines[-1] == f"{count - 1}"
        first[count] = int(lines[0])
    assert first == {
        **dict.fromkeys(range(18, 21), 0),
        **dict.fromkeys(range(21, 26), 15),
        **dict.fromkeys(range(26, 31), 20),
        **dict.fromkeys(range(31, 33), 25),
    }


def test_a_last_line_is_whole_where_it_fits_exactly() -> None:
    assert recent_lines("a b c\nd e f g", 4, words) == "d e f g"
    cut = recent_lines("a b c\nd e f g h", 4, words)
    assert cut.endswith("f g h")
    assert "d" not in cut


def test_of_a_long_text_the_beginning_and_the_end_are_counted() -> None:
    counted: list[int] = []

    def tokens(text: str) -> int:
        counted.append(len(text))
        return text.count("x")

    about, half = sampled(tokens), SAMPLED // 2
    assert about("x" * SAMPLED) == SAMPLED
    assert counted == [SAMPLED]
    assert about("x" * half + "-" * (half + SAMPLED)) == SAMPLED
    assert about("-" * (half + SAMPLED) + "x" * half) == SAMPLED
    assert about("x" + "-" * SAMPLED) == 2, "rounded up"
    assert set(counted[1:]) == {half}


@catches(
    "last-left-out",
    "a result that is too long by itself is not read at all",
    edited(recent_entries, "size > left and kept", "size > left"),
)
def test_the_last_result_is_read_however_long_it_is() -> None:
    assert recent_entries(["a b", "c d e f g h i j"], 4, words)[-1].startswith("c d")
    kept = recent_entries(["one", "x" * 400], 20, len)
    assert kept[0] == "(earlier calls are left out)"
    assert kept[1].startswith("xxxx")
    assert len(kept[1]) < 40


@pytest.mark.parametrize(
    ("most", "kept"),
    [
        (1, ["(earlier calls are left out)", "c [cut]"]),
        (2, ["(earlier calls are left out)", "cc"]),
        (3, ["(earlier calls are left out)", "cc"]),
        (4, ["(earlier calls are left out)", "bb", "cc"]),
        (6, ["(earlier calls are left out)", "bb", "cc"]),
        (7, ["aaa", "bb", "cc"]),
    ],
)
def test_entries_are_read_as_long_as_they_fit(most: int, kept: list[str]) -> None:
    assert recent_entries(["aaa", "bb", "cc"], most, len) == kept
