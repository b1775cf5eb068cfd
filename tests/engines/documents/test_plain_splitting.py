"""The splitter that needs neither LlamaIndex nor NLTK: nothing is lost, and nothing takes long."""

import random
import threading
import time

import pytest

from teola.engine import Splitting
from teola.errors import InputError
from teola_engines.documents import plain_splitting
from teola_engines.documents.files import tidy
from teola_engines.documents.plain_splitting import split
from teola_engines.documents.splitting import SplittingCancelled

from .conftest import Encode
from .test_splitting import DOCUMENTS, TEXTS, assert_covers


def words(text: str) -> list[int]:
    """A tokenizer for which each word is a token."""
    return [0] * len(text.split())


def bytes_by_four(text: str) -> list[int]:
    return [0] * (-(-len(text.encode()) // 4))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("estimated", [False, True])
def test_every_chunk_fits_and_nothing_is_left_out(
    name: str, estimated: bool, encode: Encode
) -> None:
    text, count = tidy([TEXTS[name]]), bytes_by_four if estimated else encode
    chunks = split(text, Splitting(), count)
    assert max(len(count(chunk)) for chunk in chunks) <= 254
    assert_covers(text, chunks)


@pytest.mark.parametrize(("size", "overlap"), [(16, 0), (16, 15), (64, 20), (1000, 100)])
def test_other_sizes(size: int, overlap: int) -> None:
    text = TEXTS["python reference"][:20_000]
    chunks = split(text, Splitting(size, overlap), bytes_by_four)
    assert max(len(bytes_by_four(chunk)) for chunk in chunks) <= size
    assert_covers(text, chunks)


def test_chunks_are_whole_sentences() -> None:
    text = " ".join(f"This is sentence number {i}." for i in range(100))
    chunks = split(text, Splitting(32, 0), words)
    assert [len(chunk.split(". ")) for chunk in chunks[:-1]] == [6] * (len(chunks) - 1)
    assert all(chunk.startswith("This") and chunk.endswith(".") for chunk in chunks)
    assert " ".join(chunks) == text


def test_a_chunk_ends_with_a_paragraph_where_its_second_half_has_one() -> None:
    first = " ".join(["Four words stand here."] * 5)
    second = " ".join(["Three stand here."] * 10)
    chunks = split(f"{first}\n\n{second}", Splitting(32, 0), words)
    assert chunks == [first, second]


def test_not_where_that_would_leave_it_half_empty() -> None:
    first = "Four words stand here."
    second = " ".join(["Three stand here."] * 20)
    found = split(f"{first}\n\n{second}", Splitting(32, 0), words)
    assert found[0].startswith(f"{first}\n\nThree stand here.")


def test_chunks_share_sentences() -> None:
    text = " ".join(f"This is sentence number {i}." for i in range(50))
    first, second, *_ = split(text, Splitting(32, 12), words)
    assert first.endswith("This is sentence number 4. This is sentence number 5.")
    assert second.startswith("This is sentence number 4. This is sentence number 5. This")


def chunks_by_hand(
    lengths: list[int], paragraphs: list[bool], size: int, overlap: int
) -> list[tuple[int, int]]:
    """Sentences of each chunk, as the rules say: as many as fit behind what it shares, of which
    there is less where not one new one fits; to the end of the last paragraph in its second
    half."""
    chunks, start, done = list[tuple[int, int]](), 0, 0
    while done < len(lengths):
        while sum(lengths[start : done + 1]) > size:
            start += 1
        fits = [n for n in range(done + 1, len(lengths) + 1) if sum(lengths[start:n]) <= size]
        end = max(fits)
        if end < len(lengths):
            least = sum(lengths[start:end]) / 2
            ends = [n for n in fits if paragraphs[n - 1] and sum(lengths[start:n]) >= least]
            end = max(ends, default=end)
        chunks.append((start, end))
        shared = [n for n in range(start + 1, end) if sum(lengths[n:end]) <= overlap]
        start, done = min(shared, default=end), end
    return chunks


@pytest.mark.parametrize("seed", range(150))
def test_sentences_go_into_chunks_by_the_rules(seed: int) -> None:
    """Each chunk has one that none had before."""
    draw = random.Random(seed)
    size = draw.randint(16, 24)
    overlap = draw.choice([0, draw.randrange(size), size - 1])
    count, longest = draw.randint(1, 24), draw.randint(1, size)
    lengths = [draw.randint(1, longest) for _ in range(count)]
    paragraphs = [draw.random() < 0.3 for _ in lengths]
    sentences = [" ".join(["w"] * (n - 1) + [f"w{k}."]) for k, n in enumerate(lengths)]
    between = ["\n\n" if last else " " for last in paragraphs]
    joined = "".join(map("".join, zip(sentences, between, strict=True))).rstrip()
    expected = [
        "".join(map("".join, zip(sentences[lo:hi], between[lo:hi], strict=True))).rstrip()
        for lo, hi in chunks_by_hand(lengths, paragraphs, size, overlap)
    ]
    assert split(joined, Splitting(size, overlap), words) == expected


@pytest.mark.parametrize("mark", [".", "!", "?", "…", '."', ".)", "。"])
def test_marks_that_end_a_sentence(mark: str) -> None:
    space = "" if mark == "。" else " "
    one, two = f"{'eight ' * 7}words{mark}", f"{'ten ' * 9}words{mark}"
    assert split(f"{one}{space}{two}", Splitting(16, 0), words) == [one, two]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("", []),
        ("x" * 8, [(0, 8, True)]),
        ("x" * 9, [(0, 8, False), (8, 9, True)]),
        ("x" * 16, [(0, 8, False), (8, 16, True)]),
        ("xx xxxxxxx", [(0, 8, False), (8, 10, True)]),  # not so early
        ("xxxx xxxxx", [(0, 4, False), (4, 10, True)]),
        ("xxxxxxx xx", [(0, 7, False), (7, 10, True)]),
        ("xx. xxxxxxxx\n\nx", [(0, 4, False), (4, 12, False), (12, 14, True), (14, 15, True)]),
    ],
)
def test_a_sentence_is_cut_only_where_it_is_too_long(
    text: str, spans: list[tuple[int, int, bool]]
) -> None:
    assert list(plain_splitting._spans(text, 8)) == spans


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_what_people_write_is_cut_at_sentences(path) -> None:  # type: ignore[no-untyped-def]
    text = path.read_text(encoding="utf-8")
    chunks = split(text, Splitting(), bytes_by_four)
    assert_covers(text, chunks)
    ends = [chunk for chunk in chunks if f"{chunk}\n" in text or chunk[-1] in ".!?\"')"]
    assert len(ends) == len(chunks)


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (8, 0), (64, 64), (64, -1)])
def test_senseless_sizes_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(InputError, match="chunk_size"):
        split("text", Splitting(size, overlap), words)


def test_it_stops_when_nobody_waits() -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(SplittingCancelled):
        split("Some text. More text.", Splitting(), words, cancelled)


HOSTILE = {
    "full stops": ".",
    "open quotes": '."',
    "brackets": ".)",
    "lines of blanks": "\n" + " " * 90,
    "lines": "a\n",
    "one word": "x",
    "invisible": "\u200b\n",
    "short sentences": "No. ",
    "ideographs": "語",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_twice_the_text_takes_twice_the_work(name: str) -> None:
    """Counted in what is asked of the tokenizer, and in time that leaves much room."""

    def work(length: int) -> tuple[int, float]:
        asked = 0

        def counting(text: str) -> list[int]:
            nonlocal asked
            asked += len(text) + 1
            return bytes_by_four(text)

        text = (HOSTILE[name] * length)[:length]
        began = time.process_time()
        chunks = split(text, Splitting(), counting)
        assert max(map(len, chunks), default=0) <= 254 * 4
        return asked, time.process_time() - began

    once, seconds = work(100_000)
    twice, doubled = work(200_000)
    assert twice <= 2.1 * once
    assert doubled <= 5 * seconds + 0.5


@pytest.mark.parametrize("window", [1, 2, 7, 100])
def test_where_windows_end_changes_nothing(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'One. Two!\n\n\nThree?) Four\nfive 3.5 six…" 。七。 eight.\n \n' * 20
    whole, ends = split(text, Splitting(16, 4), words), [*plain_splitting._ends(text)]
    monkeypatch.setattr(plain_splitting, "_WINDOW", window)
    assert [*plain_splitting._ends(text)] == ends
    assert split(text, Splitting(16, 4), words) == whole
    assert len(whole) > 10
