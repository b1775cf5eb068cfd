"""Files that are made to harm whoever reads them."""

from __future__ import annotations

import io
import zipfile
import zlib
from functools import cache

from fpdf import FPDF
from fpdf.enums import AccessPermission, EncryptionMethod

HEAD = b"%PDF-1.7\n"


def pdf_of(*objects: bytes, root: int = 1) -> bytes:
    """A PDF of these objects, numbered from 1."""
    out, offsets = bytearray(HEAD), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    tail = b"trailer<</Size %d/Root %d 0 R>>\nstartxref\n%d\n%%%%EOF"
    return bytes(out + tail % (len(objects) + 1, root, start))


def _stream(data: bytes, filters: bytes = b"/FlateDecode") -> bytes:
    head = b"<</Length %d/Filter%s>>" % (len(data), filters)
    return head + b"stream\n" + data + b"\nendstream"


def _page(contents: bytes) -> bytes:
    return b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents %s/Resources<<>>>>" % contents


CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
ONE_PAGE = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"


def packed(piece: bytes, times: int) -> bytes:
    """A zlib stream that unpacks to a piece so many times; one is compressed, which is quick."""
    pack = zlib.compressobj(wbits=-zlib.MAX_WBITS)  # the bare blocks, without head and checksum
    block = pack.compress(piece) + pack.flush(zlib.Z_FULL_FLUSH)  # refers to nothing before it
    checksum = 1
    for _ in range(times):
        checksum = zlib.adler32(piece, checksum)
    last = pack.flush()
    return b"\x78\x9c" + block * times + last + checksum.to_bytes(4, "big")


@cache
def deflated(mib: int = 600) -> bytes:
    """One page whose content unpacks to that much."""
    data = packed(b"BT (boom) Tj ET " * 65536, mib)
    return pdf_of(CATALOG, ONE_PAGE, _page(b"4 0 R"), _stream(data))


def twice_deflated() -> bytes:
    """A stream within a stream: a few kilobytes are a quarter of a gigabyte."""
    inner = packed(bytes(2**20), 256)
    filters = b"[/FlateDecode/FlateDecode]"
    return pdf_of(CATALOG, ONE_PAGE, _page(b"4 0 R"), _stream(zlib.compress(inner), filters))


def many_pages(count: int = 10**9) -> bytes:
    """It says that it has so many pages, and has the same one a hundred thousand times."""
    kids = b"3 0 R " * 100_000
    return pdf_of(
        CATALOG, b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, count), _page(b"4 0 R"), b"null"
    )


def nested(levels: int = 200_000) -> bytes:
    """An array in an array in an array ..."""
    return pdf_of(CATALOG, ONE_PAGE, _page(b"[" * levels + b"]" * levels))


def circular() -> bytes:
    """A tree of pages that contains itself."""
    return pdf_of(CATALOG, b"<</Type/Pages/Kids[2 0 R]/Count 1>>")


def encrypted() -> bytes:
    """With a password that nobody tells."""
    pdf = FPDF()
    pdf.set_font("helvetica", size=12)
    pdf.set_encryption(
        owner_password="owner",
        user_password="user",
        encryption_method=EncryptionMethod.AES_256,
        permissions=AccessPermission.none(),
    )
    pdf.add_page()
    pdf.multi_cell(0, 8, "a secret")
    return bytes(pdf.output())


def truncated() -> bytes:
    """The first half of a good one."""
    pdf = FPDF()
    pdf.set_font("helvetica", size=12)
    pdf.add_page()
    pdf.multi_cell(0, 8, "The lamp is looked after. " * 40)
    whole = bytes(pdf.output())
    return whole[: len(whole) // 3]


def zipped(mib: int = 100) -> bytes:
    """A zip that unpacks to that much; a .docx is one."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(mib * 2**20))
    return out.getvalue()


PDFS = {
    "deflated": deflated,
    "twice deflated": twice_deflated,
    "many pages": many_pages,
    "nested": nested,
    "circular": circular,
    "encrypted": encrypted,
    "truncated": truncated,
    "not a PDF": lambda: b"GIF89a" + bytes(2000),
    "only a head": lambda: HEAD,
}
