"""Files that are made to harm whoever reads them, and names that are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import UploadFile

from teola.serve.intake.uploads import Upload
from teola_engines.documents.sandbox import ParsingLimits
from tests.serve.conftest import Served
from tests.serve.hostile.asking import RAG, refused
from tests.serve.hostile.bombs import PDFS, zipped

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.mark.slow
@pytest.mark.parametrize("name", PDFS)
def test_pdf_bombs(
    client: httpx.Client, hostile: Served, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = hostile.runtime.host("documents").engine
    monkeypatch.setattr(loader, "_limits", ParsingLimits(cpu_s=2))  # 30 would be waited for
    files = {"documents": ("offer.pdf", PDFS[name](), "application/pdf")}
    response = client.post(RAG, data={"question": "What does it cost?"}, files=files, timeout=120)
    refused(response, 422, "cannot read 'offer.pdf'")
    assert response.json()["error"]["code"] == "unreadable_document"
    assert "teola-upload" not in response.text


@pytest.mark.parametrize("name", ["x.doc", "x.zip", "X.ZIP", "x.tar.gz", "x.exe", "x.png"])
def test_archives_are_not_opened(client: httpx.Client, name: str) -> None:
    files = {"documents": (name, zipped(1))}
    response = client.post(RAG, data={"question": "?x"}, files=files)
    refused(response, 422, "not supported")


def test_a_bomb_in_an_office_file_is_not_unpacked(client: httpx.Client) -> None:
    files = {"documents": ("x.docx", zipped(201))}
    response = client.post(RAG, data={"question": "?x"}, files=files, timeout=60)
    refused(response, 422, "unpacks to more than 200 MB")


@pytest.mark.parametrize("text", [b"", b"\0\0\0\0", b"\xff\xfe\xff", b"   "])
def test_files_without_text(client: httpx.Client, text: bytes) -> None:
    response = client.post(RAG, data={"question": "?x"}, files={"documents": ("x.txt", text)})
    refused(response, 422, "cannot read")


def test_a_file_that_is_too_large(client: httpx.Client) -> None:
    for size, told in ((51 * 2**20, "50 MiB"), (65 * 2**20, "64 MiB")):
        files = {"documents": ("x.txt", bytes(size))}
        refused(client.post(RAG, data={"question": "?x"}, files=files), 413, told)


NAMES = [
    "../../x",
    "..\\..\\x",
    "/etc/passwd",
    "C:\\boot.ini",
    "\u202efdp.exe",
    "x" * 5000,
    "",
    ".",
    "..",
    "~",
    "$(id)",
    "a\tb",
    "con",
    "%2e%2e%2f",
    "\\\\host\\share",
    "....//....//x",
    "\u2024\u2024/x",
    "x\u0000.pdf",
    "-rf",
]


async def test_files_are_named_by_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    upload, count = Upload(), 0
    for name in NAMES:
        for twist in range(106):
            with tempfile.SpooledTemporaryFile() as file:
                file.write(b"x")
                file.seek(0)
                given = f"{'../' * (twist % 5)}{name}{chr(twist)}"
                source = await upload.keep(UploadFile(file, filename=given, size=1))
                count += 1
            assert source.path is not None
            assert source.path.resolve().parent == upload.folder
            assert "/" not in source.name
            assert source.name.isprintable()
    assert count > 2000
    assert len(list(upload.folder.iterdir())) == count  # type: ignore[union-attr]
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]
    upload.remove()
    (home,) = inside.iterdir()
    assert not list(home.iterdir())
