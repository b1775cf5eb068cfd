"""A mail: who wrote to whom and when, its text, and the names of its attachments."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Final, cast

from . import Allowed, Extracted
from .encodings import decoded
from .html import text_of

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
    part = mail.get_body(("plain", "html"))
    if part is None:
        return Extracted("")
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    text = decoded(data, part.get_content_charset(""))
    if part.get_content_subtype() == "html":
        return text_of(text, keep_hidden)
    return Extracted(text)
