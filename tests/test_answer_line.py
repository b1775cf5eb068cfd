"""A streamed answer on a terminal: words stay whole, and the text is what was written."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from teola.cli.answer_line import AnswerLine

TEXT = "The lamp burns two litres of oil a night.\n\n  * Mara trims it;\n  * nobody else does. "
WIDE = "灯台の灯りは毎晩二リットルの油を燃やす。" * 3


def written(text: str, width: int, seed: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What is shown of a text that comes in pieces."""
    pieces, rng = [], random.Random(seed)
    while text:
        size = rng.randint(1, 6)
        pieces.append(text[:size])
        text = text[size:]
    with AnswerLine(width) as line:
        for piece in pieces:
            line.write(piece)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [12, 20, 80])
@pytest.mark.parametrize("seed", range(5))
def test_no_word_is_broken_at_the_edge(
    width: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    out = written(TEXT, width, seed, capsys)
    assert max(map(cell_len, out.splitlines())) <= width
    assert out.split() == TEXT.split()
    if width == 80:
        assert out == TEXT.rstrip() + "\n"


def test_words_longer_than_a_line_and_writing_without_spaces_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for text in ("x" * 50, WIDE):
        out = written(text, 12, 1, capsys)
        assert max(map(cell_len, out.splitlines())) <= 12
        assert "".join(out.split()) == text


def test_wide_writing_is_not_held_back(capsys: pytest.CaptureFixture[str]) -> None:
    line = AnswerLine(80)
    line.write("灯台")
    assert capsys.readouterr().out == "灯台"


def test_in_a_pipe_nothing_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    with AnswerLine(0) as line:
        line.write("a long text " * 20)
        assert capsys.readouterr().out == "a long text " * 20


@pytest.mark.parametrize("width", [0, 12, 20])
@pytest.mark.parametrize("seed", range(10))
def test_a_line_after_another_is_laid_out_as_the_first(
    width: int, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever that one ended; and what is ended already is not ended again."""
    draw = random.Random(seed)
    words = ["a", "lamp", "trims it;", "nobody", "灯台", "  ", "\n", "x" * 15]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(4)]
    alone = []
    for text in texts:
        with AnswerLine(width) as line:
            line.write(text)
        alone.append(capsys.readouterr().out)
    with AnswerLine(width) as line:
        for text in texts:
            line.write(text)
            line.end()
            line.end()
            assert not line.open
    assert capsys.readouterr().out == "".join(alone)


def test_a_word_that_just_fits_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    for text, shown in (
        ("aaaaaa bbbbb", "aaaaaa bbbbb\n"),
        ("aaaaaa bbbbbb", "aaaaaa\nbbbbbb\n"),
        ("aaaaaa  bbbbb", "aaaaaa\nbbbbb\n"),
        ("aaaaaaaaaaaa b", "aaaaaaaaaaaa\nb\n"),
        ("aaaaaaaaaaaaa", "aaaaaaaaaaaa\na\n"),
    ):
        with AnswerLine(12) as line:
            line.write(text)
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("width", [0, 80])
def test_a_line_knows_whether_it_was_written_and_is_open(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    line = AnswerLine(width)
    line.end()
    assert (line.written, line.open, capsys.readouterr().out) == (False, False, "")
    line.write("a\x1b[2J")
    assert (line.written, line.open) == (True, True)
    line.end()
    assert (line.written, line.open) == (True, False)
    assert capsys.readouterr().out == "a\u241b[2J\n"
