"""Nothing is truncated: every chunk fits the embedder, and together they are the whole text."""

import pydoc_data.topics
import random
import threading
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from teola.engine import Splitting
from teola.errors import DocumentError, InputError
from teola_engines.documents.files import tidy
from teola_engines.documents.splitting import SplittingCancelled, TokenCounter, sentences, split

from .conftest import Encode

ROOT = Path(__file__).parents[3]
SPECIALS = 2
RNG = random.Random(7)

PYTHON_REFERENCE = "\n\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))[
    :150_000
]
MARKDOWN = "\n".join(
    f"# Part {i}\n\n| name | value |\n| --- | --- |\n"
    + "".join(f"| row_{i}_{j} | {j * 7919 % 1000} |\n" for j in range(40))
    + f"\n```python\ndef f{i}(x: int) -> list[int]:\n    return [x ** {i}]\n```\n\n"
    + f"Some <b>prose</b> with [a link](http://example.org/{i}). " * 8
    for i in range(12)
)
TEXTS = {
    "python reference": PYTHON_REFERENCE,
    "markdown": MARKDOWN,
    "one word": "".join(RNG.choices("abcdefghij", k=20_000)),
    "chinese": "".join(chr(RNG.randint(0x4E00, 0x9FA5)) for _ in range(8_000)),
    "chinese sentences": "".join(
        "".join(chr(RNG.randint(0x4E00, 0x9FA5)) for _ in range(30)) + "。" for _ in range(300)
    ),
    "korean without a space": "".join(chr(RNG.randint(0xAC00, 0xD7A3)) for _ in range(4_000)),
    "no white space": ",".join(str(RNG.random()) for _ in range(1_500)),
    "emoji": "".join(chr(RNG.randint(0x1F300, 0x1F5FF)) + str(i) for i in range(3_000)),
    "one long line": " ".join(str(i) for i in range(6_000)),
    "white space": "start" + " \n" * 9_000 + "end",
}


def assert_covers(text: str, chunks: list[str]) -> None:
    """The chunks lie in the text in order, and between them only white space is left out.

    All places where each can lie are tried, since a text may repeat itself.
    """
    reached = {-1: 0}  # where the last chunk may start: where the text is covered to
    for chunk in chunks:
        places = {}
        for start, reach in reached.items():
            blank = len(text[reach : reach + 20_000]) - len(text[reach : reach + 20_000].lstrip())
            found = text.find(chunk, start + 1, reach + blank + len(chunk))
            while found >= 0:
                places[found] = max(reach, found + len(chunk))
                found = text.find(chunk, found + 1, reach + blank + len(chunk))
        assert places, f"text left out before {chunk[:80]!r}"
        reached = places
    assert any(not text[reach:].strip() for reach in reached.values())


@pytest.mark.parametrize("name", TEXTS)
def test_every_chunk_fits_and_nothing_is_left_out(name: str, encode: Encode) -> None:
    text = tidy([TEXTS[name]])
    chunks = split(text, Splitting(), encode)
    longest = max(len(encode(chunk)) for chunk in chunks)
    assert longest + SPECIALS <= 256
    assert (
        max(len("".join(chunk.split())) for chunk in chunks) <= 2_100
    )  # unknown words are single tokens
    assert_covers(text, chunks)


@pytest.mark.parametrize(("size", "overlap"), [(16, 0), (64, 20), (1000, 100)])
def test_other_sizes(size: int, overlap: int, encode: Encode) -> None:
    text = PYTHON_REFERENCE[:20_000]
    chunks = split(text, Splitting(size, overlap), encode)
    assert max(len(encode(chunk)) for chunk in chunks) <= size
    assert_covers(text, chunks)


def test_chunks_overlap(encode: Encode) -> None:
    text = " ".join(f"This is sentence number {i}." for i in range(200))
    first, second, *_ = split(text, Splitting(64, 20), encode)
    assert first.split(". ")[-1] in second
    apart = split(text, Splitting(64, 0), encode)
    assert sum(map(len, apart)) <= len(text)


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (8, 0), (64, 64), (64, -1)])
def test_senseless_sizes_are_refused(size: int, overlap: int, encode: Encode) -> None:
    with pytest.raises(InputError, match="chunk_size"):
        split("text", Splitting(size, overlap), encode)


def test_long_texts_are_measured_by_a_prefix(encode: Encode) -> None:
    lengths: list[int] = []

    def counting(text: str) -> list[int]:
        lengths.append(len(text))
        return encode(text)

    counter = TokenCounter(counting, 254, threading.Event())
    assert len(counter("word " * 100_000)) > 254
    assert max(lengths) <= 20_000
    assert len(counter("ab" + " " * 100 + "cd")) == 2  # white space is not a reason to stop


def test_words_that_a_tokenizer_swallows_count_by_their_characters() -> None:
    """Each word of more than 100 is one token to it: then all characters count, 8 to a token, also
    those of other words; and all those that are none at all count 64 to a token."""

    def words(text: str) -> list[int]:
        return [0] * len(text.split())

    counter = TokenCounter(words, 254, threading.Event())
    for lengths, tokens in (
        ((100, 100, 100), 304 // 64),
        ((101,), 101 // 8),
        ((101, 100), 201 // 8),
        ((3, 200, 7, 300, 200), 710 // 8),
        ((1,) * 40 + (101,), 41),
        ((1,) * 3, 3),
        ((127,) * 2, 254 // 8),
    ):
        text = " ".join("x" * length for length in lengths)
        assert len(counter(text)) == tokens, lengths
    assert len(counter(" " * 640)) == 10
    one = TokenCounter(lambda text: [0] * (3 if text == "y" else len(text.split())), 254,
                       threading.Event())  # fmt: skip
    assert [len(one(text)) for text in ("x", "y", " ", "x", "y", "")] == [1, 3, 0, 1, 3, 0]


def test_splitting_stops_when_nobody_waits(encode: Encode) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(SplittingCancelled):
        split("Some text. More text.", Splitting(), encode, cancelled)


def test_sentences_keep_every_character() -> None:
    for text in (MARKDOWN, "", "   ", "  One. Two?  Three!\n\n"):
        assert "".join(sentences(text)) == text


def test_an_empty_nltk_data_folder_does_not_matter(
    encode: Encode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NLTK_DATA", str(tmp_path))
    assert len(split("A sentence. " * 200, Splitting(), encode)) > 1


def test_a_whole_with_more_tokens_than_its_parts_is_cut_again() -> None:
    def joins_count(text: str) -> list[int]:
        """A tokenizer for which each space between two words is a token as well."""
        words = text.split()
        return [0] * (2 * len(words) - 1 if words else 0)

    text = " ".join(f"word{i}." for i in range(400))
    chunks = split(text, Splitting(16, 0), joins_count)
    assert max(len(joins_count(chunk)) for chunk in chunks) <= 16
    assert_covers(text, chunks)


def starts_of(text: str) -> list[int]:
    """Where NLTK finds that sentences begin."""
    from nltk.tokenize import PunktSentenceTokenizer  # type: ignore[import-untyped]

    return [start for start, _ in PunktSentenceTokenizer().span_tokenize(text)]


def at_once(text: str, encode: Encode) -> list[str]:
    """The chunks as LlamaIndex and NLTK make them of a whole text, whatever its length."""
    from llama_index.core.node_parser import SentenceSplitter

    def whole(text: str) -> list[str]:
        starts = starts_of(text)[1:]
        return [text[lo:hi] for lo, hi in pairwise([0, *starts, len(text)])]

    splitting = Splitting()
    splitter = SentenceSplitter(
        chunk_size=splitting.chunk_size,
        chunk_overlap=splitting.overlap,
        tokenizer=TokenCounter(encode, splitting.chunk_size, threading.Event()),
        chunking_tokenizer_fn=whole,
    )
    return splitter.split_text(text)


DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md")])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_windows_change_no_chunk_of_what_people_write(path: Path, encode: Encode) -> None:
    text = tidy([path.read_text(encoding="utf-8")])
    assert text == path.read_text(encoding="utf-8")
    assert split(text, Splitting(), encode) == at_once(text, encode)


def test_windows_end_where_sentences_do() -> None:
    starts = starts_of(PYTHON_REFERENCE)
    assert len(starts) > 500
    found = [0, *accumulate(len(sentence) for sentence in sentences(PYTHON_REFERENCE))]
    assert found == [*starts, len(PYTHON_REFERENCE)]


def test_a_sentence_without_end_is_cut() -> None:
    text = "word " * 50_000
    found = sentences(text)
    assert "".join(found) == text
    assert max(map(len, found)) <= 1 << 15
    assert {sentence[:5] for sentence in found[1:]} == {" word"}


def test_long_texts_are_split_part_by_part(encode: Encode) -> None:
    lengths: list[int] = []

    def counting(text: str) -> list[int]:
        lengths.append(len(text))
        return encode(text)

    text = "\n\n".join(f"Paragraph {i} of many, in a few words." for i in range(15_000))
    chunks = split(text, Splitting(), counting)
    assert len(text) > 500_000
    assert max(lengths) <= 1 << 18
    assert all(any(f"Paragraph {i} of" in chunk for chunk in chunks) for i in range(0, 15_000, 500))


@pytest.mark.parametrize("text", ["a" + "\u0301" * 60_000, "a" + " \u200b" * 30_000])
def test_a_chunk_is_short_also_where_nothing_is_a_token(text: str, encode: Encode) -> None:
    assert len(encode(text)) <= 2
    chunks = split(text, Splitting(), encode)
    assert max(map(len, chunks)) <= 64 * 255
    assert len("".join(chunks)) >= len("".join(text.split()))


def test_sentences_that_take_too_long_are_the_document_s_fault(
    encode: Encode, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nltk import redos  # type: ignore[import-untyped]

    monkeypatch.setattr(redos, "DEFAULT_TIMEOUT", 1e-9)
    with pytest.raises(DocumentError, match="smaller parts"):
        split("A sentence! " * 2000, Splitting(), encode)


@pytest.mark.slow
def test_many_short_sentences_take_no_time_from_each_other(encode: Encode) -> None:
    """NLTK gives all of the sentences that it looks for at once five seconds."""
    text = "No. " * 65_000
    assert len(text) < 1 << 18
    assert len(split(text, Splitting(), encode)) > 500
