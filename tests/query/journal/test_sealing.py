"""Seals: what was sealed once opens for ever, in its own place and nowhere else."""

from __future__ import annotations

import base64
import struct
import threading
from functools import partial
from hashlib import blake2b

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from teola.errors import InputError
from teola.query.journal.lost import JournalUnreadable
from teola.query.journal.sealing import AT_ONCE, MARK, PART, QuerySeal, Seal, request_place

KEY, OTHER = "a key that nobody guesses", "another key that is as long"
TENANT, QUERY = "ali\ud800ce", "qü"
"""Names as clients may give them."""
TEXTS = {
    "": "aead1:AAAAAAAAAAAAAAAAbRUjRAjk2H06dCfxGagI+g==",
    "über \ud800": "aead1:AQEBAQEBAQEBAQEB6H76uHNTBCzF2nugGQRsCo0bXzKBvJZBEA==",
}
"""As `step/a` of that query, and what servers have written for them."""
PIECE = (
    b"body\0",
    (b"\0teola-aead1\0" + bytes([2] * 12) + b"jm9cu\xc5V\x80Id\x9eT\xf3\xc1\xe3\x82j\x8d\x92b\x16"),
)
FIRST = (
    "alt ü",
    (
        "fernet:gAAAAABrCVIgAwMDAwMDAwMDAwMDAwMDA-18uS4VGqDwXxtaa7xwHOKdRVn-0wd3MSj6HgxblIVViEf3OOJeQSqT"
        "es_AzOqXyg=="
    ),
)
CLOSED = (
    f"what the journal has of query {QUERY} cannot be opened: it was written with another "
    "server.journal_key, or changed since"
)
PLAIN = (
    f"what the journal has of query {QUERY} cannot be opened: part of it lies there unsealed, in "
    "a journal that is sealed"
)


def refusal(seal: QuerySeal, place: str, value: str | bytes) -> str:
    """Why a value is not opened."""
    opening = (
        partial(seal.open, place, value)
        if isinstance(value, str)
        else partial(seal.open_piece, place, value)
    )
    with pytest.raises(JournalUnreadable) as raised:
        opening()
    return str(raised.value)


# --- what lies in journals ------------------------------------------------------------------


def test_what_was_sealed_once_opens_with_that_key() -> None:
    seal = Seal(KEY).of(TENANT, QUERY)
    for text, sealed in TEXTS.items():
        assert seal.open("step/a", sealed) == text
    assert seal.open_piece("files/0/1", PIECE[1]) == PIECE[0]
    assert seal.open("anywhere", FIRST[1]) == FIRST[0]


def test_parts_of_a_long_text_lie_there_by_their_numbers_and_the_last_one_says_so() -> None:
    """Read as it is written down: AES-256-GCM, by a key of the query, with the place beside it."""

    def derived(root: bytes, purpose: bytes, *names: str) -> bytes:
        encoded = [name.encode("utf-8", "surrogatepass") for name in names]
        whole = b"".join(struct.pack(">Q", len(name)) + name for name in encoded)
        return blake2b(whole, key=root, digest_size=32, person=purpose).digest()

    root = blake2b(KEY.encode(), digest_size=32, person=b"teola-seal").digest()
    cipher = AESGCM(derived(root, b"teola-query", TENANT, QUERY))
    text = "x" * PART + "y" * PART + "z"
    sealed = Seal(KEY).of(TENANT, QUERY).close("step/a", text).removeprefix(MARK)
    places = [b"step/a\x000", b"step/a\x001", b"step/a\x002."]
    parts = [base64.b64decode(part, validate=True) for part in sealed.split(".")]
    opened = [cipher.decrypt(p[:12], p[12:], at) for p, at in zip(parts, places, strict=True)]
    assert b"".join(opened).decode() == text


def test_what_is_signed_and_compared_is_the_same_on_every_server() -> None:
    seal, digest = Seal(KEY), "bedf9d5ef44395d7dae1eff4d6f88e2ceef77f239deaa79e25db3d986d653d11"
    assert seal.digest("alice", "abc") == f"hmac1:{digest}"
    note = "2026-01-02:967d02beadca5fcc0631b2fbdc30fce61e161e911a566bbd42dfddb2cd006fd9"
    assert seal.note("2026-01-02") == note
    ids = "3946548f86f09467e4fb3fc68905944d1b4bac57aea93766c4a42f835d1c9b41"
    assert seal.key_of_call_ids == bytes.fromhex(ids)


def test_digests_tell_requests_and_tenants_apart_and_say_nothing_without_the_key() -> None:
    """Names that read the same one after the other are others."""
    seal = Seal(KEY)
    asked = [("ab", "c"), ("a", "bc"), ("abc", ""), ("ab", "d")]
    assert len({seal.digest(*one) for one in asked}) == len(asked)
    assert seal.digest("ab", "c") != Seal(OTHER).digest("ab", "c")
    assert seal.digest("ab", None) is None
    assert Seal().digest("ab", "c") == "c"
    assert Seal().digest("ab", None) is None


def test_a_note_is_believed_if_this_key_has_made_it_for_its_time() -> None:
    seal = Seal(KEY)
    when, _, code = (note := seal.note("2026-01-02 10:11:12")).rpartition(":")
    assert seal.wrote(note)
    for other in (f"{when}0:{code}", f"{when}:{code[:-1]}", f"{when}:", when, code, "", "begun"):
        assert not seal.wrote(other)
    assert not Seal(OTHER).wrote(note)
    assert not Seal().wrote(note)


# --- keys -----------------------------------------------------------------------------------


def test_a_key_has_sixteen_characters() -> None:
    assert Seal("x" * 16).has_key
    with pytest.raises(InputError) as raised:
        Seal("x" * 15)
    assert str(raised.value) == (
        "server.journal_key has 15 characters, and needs 16 at least: make one with "
        "`openssl rand -base64 32`"
    )


def test_without_a_key_values_stay_as_they_are_until_the_journal_is_sealed() -> None:
    seal = Seal()
    own = seal.of(TENANT, QUERY)
    assert (seal.has_key, seal.required, seal.key_of_call_ids) == (False, False, None)
    assert own.close("p", "text") == own.open("p", "text") == "text"
    assert own.close_piece("p", b"body") == own.open_piece("p", b"body") == b"body"
    for sealed in (*TEXTS.values(), PIECE[1], FIRST[1]):
        assert refusal(own, "step/a", sealed) == CLOSED
    seal.required = True
    for close in (lambda: own.close("p", "text"), lambda: own.close_piece("p", b"body")):
        with pytest.raises(JournalUnreadable) as raised:
            close()
        assert str(raised.value) == (
            "the journal is sealed: this server needs the server.journal_key that sealed it"
        )


@pytest.mark.parametrize("key", [None, KEY])
def test_where_all_is_sealed_nothing_plain_and_nothing_of_the_first_form_is_believed(
    key: str | None,
) -> None:
    seal = Seal(key)
    own = seal.of(TENANT, QUERY)
    assert own.open("p", "text") == "text"
    assert own.open_piece("p", b"body") == b"body"
    seal.required = True
    for plain in ("", "text", FIRST[1], b"", b"body"):
        assert refusal(own, "p", plain) == PLAIN
    if key is not None:
        assert own.open("step/a", TEXTS[""]) == ""
        assert own.open_piece("files/0/1", PIECE[1]) == PIECE[0]


# --- places ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 1])
def test_a_text_of_any_length_comes_back_and_never_twice_the_same(count: int) -> None:
    own = Seal(KEY).of(TENANT, QUERY)
    text = ("ü\ud800z" * (count // 3 + 1))[:count]
    sealed = own.close("step/a", text)
    assert own.open("step/a", sealed) == text
    assert sealed.count(".") == max(0, count - 1) // PART
    assert sealed != own.close("step/a", text)


def test_a_part_opens_where_it_stood_and_none_is_left_out() -> None:
    own = Seal(KEY).of(TENANT, QUERY)
    first, middle, last = own.close("step/a", "x" * (3 * PART))[len(MARK) :].split(".")
    (alone,) = own.close("step/a", "x")[len(MARK) :].split(".")
    changed = [
        *([first], [first, middle], [middle, last], [first, last], [last], [first, alone]),
        *([middle, first, last], [first, last, middle], [first, middle, last, last]),
        *([first, middle, ""], ["", middle, last], ["é"], ["A"], ["A" * 16], [alone, ""]),
        *([alone[:-4]], [f"{alone}\n"], [f"{alone[:8]} {alone[8:]}"]),
    ]
    for parts in changed:
        assert refusal(own, "step/a", MARK + ".".join(parts)) == CLOSED
    assert own.open("step/a", f"{MARK}{first}.{middle}.{last}") == "x" * (3 * PART)


def test_a_value_opens_for_its_query_and_in_its_place_alone() -> None:
    seal = Seal(KEY)
    own, text, body = seal.of(TENANT, QUERY), TEXTS["über \ud800"], PIECE[1]
    assert refusal(own, "step/b", text) == CLOSED
    assert refusal(own, "files/1/0", body) == CLOSED
    assert refusal(own, "files/0/1", body[:-1]) == CLOSED
    assert refusal(own, "files/0/1", body[:20]) == CLOSED
    others = [seal.of("bob", QUERY), seal.of(TENANT + QUERY, ""), Seal(OTHER).of(TENANT, QUERY)]
    for other in (*others, seal.of(TENANT, "r")):
        assert "it was written with another server.journal_key" in refusal(other, "step/a", text)
        assert "it was written with another server.journal_key" in refusal(other, "files/0/1", body)
    whole = base64.b64decode(text.removeprefix(MARK))
    for at in (0, 12, len(whole) - 1):
        bent = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert refusal(own, "step/a", MARK + base64.b64encode(bent).decode()) == CLOSED


def test_places_may_be_called_anything() -> None:
    """As steps are, by what models and clients write."""
    own = Seal(KEY).of(TENANT, QUERY)
    for place, other in (("step/\ud800", "step/\ud801"), ("step/ü", "step/u"), ("", " ")):
        assert own.open(place, own.close(place, "text")) == "text"
        assert own.open_piece(place, own.close_piece(place, b"body")) == b"body"
        assert refusal(own, other, own.close(place, "text")) == CLOSED


def test_a_request_stands_in_its_application_and_its_version() -> None:
    places = {request_place(*of) for of in (("a", "b"), ("ab", ""), ("", "ab"), ("a", "c"))}
    assert len(places) == 4
    assert request_place("app", None) == request_place("app", "") == "request\0app\0"


# --- threads --------------------------------------------------------------------------------


class Watched(QuerySeal):
    """Keeps whether it worked on the event loop's thread."""

    def __init__(self) -> None:
        super().__init__(Seal(KEY), bytes(32), QUERY)
        self.loop, self.there = threading.current_thread(), list[bool]()

    def close(self, place: str, text: str) -> str:
        self.there.append(threading.current_thread() is self.loop)
        return super().close(place, text)

    def open(self, place: str, text: str) -> str:
        self.there.append(threading.current_thread() is self.loop)
        return super().open(place, text)


@pytest.mark.parametrize("more", [0, 1])
async def test_what_is_long_is_sealed_and_opened_beside_the_event_loop(more: int) -> None:
    own = Watched()
    text = "x" * (AT_ONCE + more)
    sealed = await own.closed("step/a", text)
    assert own.open("step/a", sealed) == text
    assert await own.opened("step/a", sealed) == text
    plain = "y" * (AT_ONCE + more)
    assert await own.opened("step/a", plain) == plain
    on_the_loop = not more
    assert own.there == [on_the_loop, True, False, on_the_loop], "sealed it is longer"
