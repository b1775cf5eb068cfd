"""What the loader reads, and what it refuses: always with one line that says what to do."""

import hashlib
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from teola.engine import Source, Splitting
from teola.errors import DocumentError, UnknownName
from teola_engines.documents import FileLoader, files
from teola_engines.documents.plain_splitting import split as split_plainly
from teola_engines.documents.splitting import split as split_by_llama_index

from .conftest import Encode

PAGE = """<!doctype html><html><head><title>Tariffs &amp; fees</title>
<style>p { color: red }</style><script>var secret = "<p>not text</p>";</script></head>
<body><h2>Prices of 2026</h2><p>The <b>ba</b>sic plan costs
   9&nbsp;euros.</p><ul><li>No setup fee</li><li>Cancel <a href="/x">any time</a></li></ul>
<table><tr><th>plan</th><th>price</th></tr><tr><td>basic</td><td>9</td></tr></table>
<pre>x = 1
    y = 2</pre><script>alert(1)</script></body></html>"""


async def load(path: Path, encode: Encode) -> str:
    chunks = await FileLoader().split(Source(path.name, path=path), Splitting(), encode)
    return "\n".join(chunks)


async def refused(path: Path, encode: Encode, loader: FileLoader | None = None) -> str:
    with pytest.raises(DocumentError) as caught:
        await (loader or FileLoader()).split(Source(path.name, path=path), Splitting(), encode)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    return message


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.py", "a.json", "README", "a.unheard-of"])
async def test_text_of_any_suffix_is_kept_as_it_is(
    name: str, tmp_path: Path, encode: Encode
) -> None:
    text = "# Title\n\n| a | b |\n|---|---|\n| List<int> | [link](http://x.y) |\n\n![](i.png) naïve"
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert await load(tmp_path / name, encode) == text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
async def test_byte_order_marks(encoding: str, tmp_path: Path, encode: Encode) -> None:
    (tmp_path / "a.txt").write_bytes("naïve\r\ntext".encode(encoding))
    assert await load(tmp_path / "a.txt", encode) == "naïve\ntext"


async def test_html_keeps_text_tables_and_headings_and_drops_scripts(
    tmp_path: Path, encode: Encode
) -> None:
    (tmp_path / "a.html").write_text(PAGE, encoding="utf-8")
    text = await load(tmp_path / "a.html", encode)
    for kept in (
        "Tariffs & fees",
        "## Prices of 2026",
        "The basic plan costs 9 euros.",
        "* No setup fee\n* Cancel any time",
        "plan | price\nbasic | 9",
        "x = 1\n    y = 2",
    ):
        assert kept in text.replace("\xa0", " ")
    assert "secret" not in text
    assert "color" not in text
    assert "alert" not in text


@pytest.mark.parametrize(
    "data",
    [
        '<meta charset="iso-8859-2"><p>Łódź</p>'.encode("iso-8859-2"),
        "<p>Łódź".encode("utf-16"),
        "<div><p>Łódź</div>".encode(),
    ],
)
async def test_html_in_other_encodings_and_unclosed(
    data: bytes, tmp_path: Path, encode: Encode
) -> None:
    (tmp_path / "a.htm").write_bytes(data)
    assert await load(tmp_path / "a.htm", encode) == "Łódź"


async def test_pdf(make_pdf: Callable[..., Path], encode: Encode) -> None:
    text = await load(make_pdf("The first page is about whales.", "The second: krill."), encode)
    assert "about whales" in text
    assert text.index("whales") < text.index("krill")


async def test_pdf_that_only_its_owner_may_change_is_read(
    make_pdf: Callable[..., Path], encode: Encode
) -> None:
    assert "whales" in await load(make_pdf("About whales.", password=""), encode)


@pytest.mark.slow
async def test_refused_pdfs(make_pdf: Callable[..., Path], tmp_path: Path, encode: Encode) -> None:
    broken = make_pdf("x" * 500, name="broken.pdf")
    broken.write_bytes(broken.read_bytes()[:300])
    assert "broken" in await refused(broken, encode)
    assert "encrypted" in await refused(make_pdf("x", name="locked.pdf", password="p"), encode)
    assert "OCR" in await refused(make_pdf("", name="scan.pdf"), encode)


async def test_no_such_file(tmp_path: Path, encode: Encode) -> None:
    assert "no such file" in await refused(tmp_path / "missing.txt", encode)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("empty.txt", b"", "empty"),
        ("blank.md", b" \n\t\n", "no text"),
        ("blank.html", b"<html><script>1</script></html>", "no text"),
        ("binary.txt", bytes(range(256)) * 40, "binary"),
        ("nul.txt", b"text\0text", "binary"),
        ("latin1.txt", "café".encode("latin-1"), "UTF-8"),
        ("image.png", b"\x89PNG\r\n", "not supported"),
        ("word.doc", b"\xd0\xcf\x11\xe0", "not supported"),
        ("word.docx", b"PK\x03\x04", "broken"),
        ("unknown.xyz", b"\x7fELF\0\0\xff", "binary"),
    ],
)
async def test_refused_files(
    name: str, data: bytes, reason: str, tmp_path: Path, encode: Encode
) -> None:
    (tmp_path / name).write_bytes(data)
    assert reason in await refused(tmp_path / name, encode)


async def test_directories_and_pipes(tmp_path: Path, encode: Encode) -> None:
    assert "directory" in await refused(tmp_path, encode)
    os.mkfifo(tmp_path / "pipe.txt")  # opening it would wait for ever
    assert "regular file" in await refused(tmp_path / "pipe.txt", encode)


async def test_a_file_of_60_mb(tmp_path: Path, encode: Encode) -> None:
    path = tmp_path / "large.txt"
    with path.open("wb") as stream:
        stream.truncate(60_000_000)
    assert "60 MB, more than the 50 MB" in await refused(path, encode)
    with pytest.raises(DocumentError, match="50 MB"):
        FileLoader().fingerprint(Source("large", path=path))


async def test_inline_text(encode: Encode) -> None:
    loader = FileLoader(max_bytes=1000)
    assert await loader.split(Source("note", text="Hello.\r\n"), Splitting(), encode) == ["Hello."]
    for text in ("", "  ", "a\0b", "\ud800", "x" * 1001, None):
        with pytest.raises(DocumentError, match="note"):
            await loader.split(Source("note", text=text), Splitting(), encode)


async def test_long_white_space_is_cut_short(tmp_path: Path, encode: Encode) -> None:
    path = tmp_path / "a.txt"
    path.write_text("oil" + " " * 5_000_000 + "\r\n" * 100_000 + "lamp\n\n\n    indented\n")
    text = await load(path, encode)
    assert len(text) < 1000
    assert text.split() == ["oil", "lamp", "indented"]
    assert text.endswith("lamp\n\n\n    indented")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
async def test_characters_that_lie_across_what_is_read_at_once(
    encoding: str, tmp_path: Path, encode: Encode
) -> None:
    path = tmp_path / "a.txt"
    words = "naïve 🚢 Łódź\r\n" * 80_000
    path.write_bytes(words.encode(encoding))
    text = files.read_text(path, 50_000_000)
    assert text == words.replace("\r\n", "\n")


@pytest.mark.parametrize("at", [0, 1_048_575, 1_048_576, 2_100_000])
async def test_where_a_text_is_broken_is_told(at: int, tmp_path: Path, encode: Encode) -> None:
    data = bytearray("é".encode() * 1_100_000)
    data[at] = 0xFF
    (tmp_path / "a.txt").write_bytes(data)
    wrong = at if at % 2 == 0 else at - 1
    assert f"not UTF-8 text (byte {wrong})" in await refused(tmp_path / "a.txt", encode)


def test_fingerprint_is_the_digest_of_the_bytes(tmp_path: Path) -> None:
    loader, path = FileLoader(), tmp_path / "a.txt"
    path.write_bytes(b"caf\xc3\xa9")
    found = loader.fingerprint(Source("a", path=path))
    assert (found.sha256, found.size) == (hashlib.sha256(b"caf\xc3\xa9").hexdigest(), 5)
    assert loader.fingerprint(Source("other name", text="café")) == found
    (tmp_path / "a.png").write_bytes(b"x")
    for bad in (tmp_path / "none.txt", tmp_path, tmp_path / "a.png"):
        with pytest.raises(DocumentError):
            loader.fingerprint(Source("x", path=bad))


def test_the_pipeline_names_what_splits() -> None:
    told = FileLoader().pipeline(Splitting(64, 8))
    assert version("llama-index-core") in told
    assert version("pypdf") in told
    assert told.endswith("/64/8")


def test_the_splitter_goes_by_the_configuration() -> None:
    """Not by what is installed: so the same application makes the same chunks everywhere."""
    exact, estimated = Splitting(), Splitting(estimated=True)
    assert "llama-index" in FileLoader().pipeline(exact)
    assert "llama-index" not in FileLoader().pipeline(estimated)
    assert "llama-index" in FileLoader(splitter="llama-index").pipeline(estimated)
    assert "llama-index" not in FileLoader(splitter="plain").pipeline(exact)
    with pytest.raises(UnknownName, match=r"unknown splitter 'plane'.*did you mean 'plain'"):
        FileLoader(splitter=cast("Any", "plane"))


@pytest.mark.parametrize(("splitter", "estimated"), [("plain", False), (None, True)])
async def test_it_splits_plainly_where_that_is_wanted(
    splitter: Literal["plain"] | None, estimated: bool
) -> None:
    text = "A sentence of seven words, and more. " * 40
    splitting = Splitting(32, 0, estimated)
    found = await FileLoader(splitter=splitter).split(Source("a", text=text), splitting, letters)
    assert found == split_plainly(text, splitting, letters)
    assert found != split_by_llama_index(text, splitting, letters)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_a_text_may_have_just_as_many_bytes_as_are_allowed() -> None:
    """It is read in pieces of 2^20 characters; these have three bytes each."""
    text = "字" * (2**20 + 1)
    loader = FileLoader(max_bytes=len(text.encode()))
    assert loader.fingerprint(Source("a", text=text)).size == len(text.encode())
    with pytest.raises(DocumentError, match="larger than the 3 MB allowed"):
        loader.fingerprint(Source("a", text=text + "."))
