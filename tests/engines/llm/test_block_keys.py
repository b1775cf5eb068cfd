"""Keys of prompts: equal as far as a server could use the same blocks, and no farther."""

from __future__ import annotations

from teola.engine import QueryContext, TextPart
from teola.graph.prompt import Role
from teola.kv import follow, root
from teola.kv.block_keys import chained
from teola_engines.llm import block_keys
from tests.planted import catches, edited

IDS = list(range(100, 142))


def common(first: tuple[object, ...], second: tuple[object, ...]) -> int:
    same = [a == b for a, b in zip(first, second, strict=False)]
    assert same == sorted(same, reverse=True), "chained"
    return sum(same)


@catches(
    "keys-unchained",
    "a key forgets what precedes its block",
    edited(
        chained,
        "        key = digest.digest()\n        yield key",
        "        yield digest.digest()",
    ),
)
@catches(
    "keys-odd-block",
    "a block that is not full has a key",
    edited(chained, "len(data) + 1", "len(data) + size"),
)
def test_full_blocks_have_chained_keys() -> None:
    tokens, blocks = block_keys.of_ids(IDS, 4, "t")
    assert (tokens, len(blocks), len(set(blocks))) == (42, 10, 10)
    for changed in (0, 3, 4, 17, 39):
        other = [*IDS[:changed], 7, *IDS[changed + 1 :]]
        assert common(blocks, block_keys.of_ids(other, 4, "t").blocks) == changed // 4
    assert (
        block_keys.of_ids([5] * 12, 4, "t").blocks[0] != block_keys.of_ids([5] * 12, 4, "t")[1][1]
    )
    assert block_keys.of_ids([], 4, "t") == (0, ())


def test_the_keys_of_what_follows() -> None:
    blocks = block_keys.of_ids(IDS, 4, "t").blocks
    assert follow(blocks[2], IDS[12:], 4) == blocks[3:]
    assert follow(root("t"), IDS, 4) == blocks


@catches("keys-unsalted", "tenants share keys", edited(root, "salt.encode()", "b''"))
def test_tenants_share_no_key() -> None:
    salts = [block_keys.tenant_salt("key", QueryContext("q", tenant=t)) for t in ("a", "b")]
    salts.append(block_keys.tenant_salt("other", QueryContext("q", tenant="a")))
    found = [block_keys.of_ids(IDS, 4, salt).blocks for salt in salts]
    assert len({key for keys in found for key in keys}) == 3 * 10


def test_the_salt_is_what_it_has_always_been() -> None:
    """A server's cache is not lost when Teola is brought up to date."""
    salt = block_keys.tenant_salt("", QueryContext("q", tenant="default"))
    assert salt == "0cd3e9ecf693a4c5edb51bdf3469d7cafb0dc9e47ab8a992d6ab55b9c9bebc2a"


def test_texts_in_blocks_of_so_many_bytes() -> None:
    parts = (TextPart(Role.INSTRUCTION, "naïve " * 20), TextPart(Role.QUESTION, "why?\udc00"))
    tokens, blocks = block_keys.of_text(parts, 4, "t")
    assert (tokens, len(blocks)) == (125 // 4 + 1, (140 + 4 + 3) // 16)
    joined = (TextPart(Role.QUESTION, "".join(part.text for part in parts)),)
    assert block_keys.of_text(joined, 4, "t") == (tokens, blocks)
    assert common(block_keys.of_text(parts[:1], 4, "t").blocks, blocks) == 140 // 16
