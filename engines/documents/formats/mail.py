"""A mail: who wrote to whom and when, its text, and the names of its attachments."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Final, cast

from . import Allowed, Extracted
from .encodings import decoded
from .html import html_text

_HEADERS: Final = ("Subject", "From", "To", "Cc", "Date")


def read(path: Path, allowed: Allowed) -> Extracted:
    """The text of an .eml file; its plain text where it has one, else the text of its page."""
    mail = cast("EmailMessage", message_from_bytes(path.read_bytes(), policy=policy.default))
    head = [f"{name}: {mail[name]}" for name in _HEADERS if mail[name]]
    names = [part.get_filename() or part.get_content_type() for part in mail.iter_attachments()]
    if names:
        head.append(f"Attachments, not read: {', '.join(names)}")
    body = _body(mail, allowed.keep_hidden)
    return Extracted("\n".join(head) + "\n\n" + body.text, body.hidden)


def _body(mail: EmailMessage, keep_hidden: bool) -> Extracted:
    for kind in ("plain", "html"):
        part = mail.get_body((kind,))
        payload = part.get_payload(decode=True) if part is not None else None
        if part is None or not isinstance(payload, bytes):
            continue
        text = decoded(payload, part.get_content_charset(""))
        body = html_text(text, keep_hidden) if kind == "html" else Extracted(text)
        if body.text.strip() or body.hidden:  # many send an empty plain text beside the page
            return body
    return Extracted("")
