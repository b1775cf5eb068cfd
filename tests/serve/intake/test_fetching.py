"""Documents by URL: what is fetched, and that nothing is from where only the server can reach.

Long because every way out to where nobody may look is tried through the same web server.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from teola.errors import InputError
from teola.serve.intake.addresses import public
from teola.serve.intake.fetch_policy import FetchPolicy, suffix_of
from teola.serve.intake.fetching import Fetcher, resolved
from teola.serve.intake.uploads import Allowance
from tests.serve.intake.web import HANG, Canary, Web, serving

NAMES = {
    "inside.test": ["127.0.0.1"],
    "mixed.test": ["93.184.216.34", "127.0.0.1"],
    "six.test": ["::1"],
    "mapped.test": ["::ffff:127.0.0.1"],
    "scoped.test": ["fe80::1%lo"],
    "nat.test": ["64:ff9b::7f00:1"],
    "metadata.google.internal": ["169.254.169.254"],
    "nobody.test": [],
    "web.test": ["127.0.0.2"],
    "other.test": ["127.0.0.2"],
}
LOOPBACK = [
    "http://127.0.0.1:{port}/", "http://127.1:{port}/", "http://127.0.1:{port}/",
    "http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://0x7F.0.0.1:{port}/",
    "http://017700000001:{port}/", "http://0177.0x0.1:{port}/", "http://0:{port}/",
    "http://0.0.0.0:{port}/", "http://localhost:{port}/", "HTTP://LOCALHOST:{port}/",
    "http://127。0。0。1:{port}/", "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/", "http://inside.test:{port}/",
]  # fmt: skip
"""These lead to the canary where every address is allowed."""
ELSEWHERE = [
    "http://0177.0.0.1:{port}/", "http://127.0.0.1.:{port}/", "http://localhost.:{port}/",
    "http://[::1]:{port}/", "http://[::]:{port}/", "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[::127.0.0.1]:{port}/", "http://[64:ff9b::7f00:1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/", "http://[2002:7f00:1::]:{port}/",
    "http://[2001:0:7f00:1::80ff:fffe]:{port}/", "http://[fe80::1%25lo]:{port}/",
    "http://[fe80::1%lo]:{port}/", "http://[fec0::1]:{port}/", "http://[ff02::1]:{port}/",
    "http://six.test:{port}/", "http://mapped.test:{port}/", "http://scoped.test:{port}/",
    "http://nat.test:{port}/", "http://mixed.test:{port}/", "http://nobody.test:{port}/",
    "http://169.254.169.254/latest/meta-data/", "http://2852039166/", "http://[fd00:ec2::254]/",
    "http://[::ffff:169.254.169.254]/", "http://metadata.google.internal/",
    "http://100.100.100.200/", "http://192.0.0.192/", "http://168.63.129.16/",
    "http://10.0.0.1/", "http://172.16.0.1/", "http://192.168.0.1/", "http://198.18.0.1/",
    "http://224.0.0.1/", "http://240.0.0.1/", "http://255.255.255.255/",
    "http://example.com@127.0.0.1:{port}/", "http://web.test:80@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}@web.test/", "http://web.test\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@web.test/", "http://nobody.test#@127.0.0.1:{port}/",
    "http://nobody.test?@127.0.0.1:{port}/", "http://127.0.0.1:{port}#@web.test/",
    "http://①②⑦.⓪.⓪.①:{port}/", "http://ｌｏｃａｌｈｏｓｔ:{port}/", "http://127．0．0．1:{port}/",
    "http://127%2e0%2e0%2e1:{port}/", "http://%31%32%37.0.0.1:{port}/",
    "http://127.0.0.1%00.web.test:{port}/", "http://127.0.0.1\u0000:{port}/",
    "file:///etc/passwd", "gopher://127.0.0.1:{port}/_GET", "data:text/plain,hello",
    "jar:http://127.0.0.1:{port}/!/x", "ftp://127.0.0.1:{port}/", "dict://127.0.0.1:{port}/",
    "//127.0.0.1:{port}/", "http:127.0.0.1:{port}/", "http:///127.0.0.1:{port}/", "http://", "",
    "127.0.0.1:{port}", "\thttp://127.0.0.1:{port}/", "http://127.0.0.1:{port}/ x",
    "http:\\\\127.0.0.1:{port}\\", "http://127.0.0.1:{port}/\r\nHost: web.test",
    "http://127.0.0.1:notaport/", "http://127.0.0.1:99999/", "http://127.0.0.1:-1/",
]  # fmt: skip


async def named(host: str, port: int) -> list[str]:
    """The names above; numbers and `localhost` as the system takes them; nothing else."""
    if host in NAMES:
        return NAMES[host]
    if host.rstrip(".").lower() == "localhost" or not any(c in "ghijklmnopqrstuvwyz" for c in host):
        return await resolved(host, port)
    raise OSError(f"no address of {host}")


def only(*texts: str) -> Any:
    """A policy's test of addresses: these and no others."""
    return lambda address: address in [ip_address(text) for text in texts]


def fetcher(port: int, allowed: Any = public, **limits: Any) -> Fetcher:
    given = {"ports": (80, 443, port), "connect_s": 2.0, "silence_s": 2.0, **limits}
    return Fetcher(FetchPolicy(allowed=allowed, **given), named)


@pytest.fixture
def canary() -> Iterator[Canary]:
    found = Canary()
    yield found
    found.close()


class Folder:
    """Where documents go: `place`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def place(self, suffix: str) -> Path:
        return self.path / f"{uuid4().hex}{suffix}"

    async def fetch(self, by: Fetcher, url: str) -> Path:
        return await by.fetch(url, self.place, Allowance(2**20))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# --- what is refused -------------------------------------------------------------------------


async def test_no_url_leads_inside(canary: Canary, folder: Folder) -> None:
    by = fetcher(canary.port)
    for pattern in (*LOOPBACK, *ELSEWHERE):
        url = pattern.format(port=canary.port)
        with pytest.raises(InputError) as caught:
            await folder.fetch(by, url)
        assert canary.connections() == 0, url
        assert "\n" not in str(caught.value)
    assert list(folder.path.iterdir()) == []


async def test_the_canary_would_have_been_reached(canary: Canary, folder: Folder) -> None:
    by = fetcher(canary.port, allowed=lambda address: True, silence_s=0.05)
    for pattern in LOOPBACK:
        url = pattern.format(port=canary.port)
        with pytest.raises(InputError):
            await folder.fetch(by, url)
        assert canary.connections() == 1, url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("93.184.216.34", True), ("8.8.8.8", True), ("2606:2800:220:1::1", True),
        ("::ffff:8.8.8.8", True), ("64:ff9b::808:808", True), ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False), ("64:ff9b:1::808:808", False), ("2002:808:808::", False),
        ("2002:a00:1::", False), ("2001:0:808:808::", False), ("2001:db8::1", False),
        ("::8.8.8.8", False), ("::ffff:0:8.8.8.8", False), ("100.64.0.1", False),
        ("192.88.99.1", False), ("198.51.100.1", False), ("203.0.113.1", False),
        ("239.1.1.1", False), ("2606:2800::1%eth0", False), ("fc00::1", False),
        ("3fff::1", False), ("5f00::1", False), ("100::1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_public(text: str, expected: bool) -> None:
    assert public(ip_address(text)) is expected


async def test_whatever_goes_wrong_inside_reads_alike(canary: Canary, folder: Folder) -> None:
    """Refused, silent, unknown or private: nobody can tell which ports and names there are."""
    closed = Canary()
    closed.close()
    open_ = fetcher(canary.port, allowed=only("127.0.0.1"), silence_s=0.05)
    shut = fetcher(closed.port, allowed=only("127.0.0.1"))
    asked = [
        (fetcher(canary.port), f"http://127.0.0.1:{canary.port}/"),
        (fetcher(closed.port), f"http://127.0.0.1:{closed.port}/"),
        (fetcher(canary.port), f"http://nobody.test:{canary.port}/"),
        (fetcher(canary.port), f"http://unknown.test:{canary.port}/"),
        (open_, f"http://127.0.0.1:{canary.port}/"),
        (shut, f"http://127.0.0.1:{closed.port}/"),
    ]
    told = set()
    for by, url in asked:
        with pytest.raises(InputError) as caught:
            await folder.fetch(by, url)
        told.add(str(caught.value).replace(url, "URL"))
    assert told == {"'URL': no public server answers there; send the document itself"}


async def test_a_name_that_changes_its_mind_gains_nothing(folder: Folder) -> None:
    """The address that was looked at is the one that is connected to."""
    async with serving() as web:
        canary, asked = Canary(web.port), 0
        web.pages["/"] = (200, {"content-type": "text/plain"}, b"from outside")

        async def flips(host: str, port: int) -> list[str]:
            nonlocal asked
            asked += 1
            return ["127.0.0.2"] if asked == 1 else ["127.0.0.1"]

        policy = FetchPolicy(ports=(web.port,), allowed=only("127.0.0.2"))
        path = await folder.fetch(Fetcher(policy, flips), f"http://flips.test:{web.port}/")
        assert path.read_bytes() == b"from outside"
        assert asked == 1
        assert canary.connections() == 0
        canary.close()


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{port}/", "//127.0.0.1:{port}/", "http://inside.test:{port}/",
        "http://mixed.test:{port}/", "http://[::1]:{port}/", "file:///etc/passwd",
        "http://web.test@127.0.0.1:{port}/", "http:\\\\127.0.0.1:{port}", "http://web.test:1/",
    ],
)  # fmt: skip
async def test_a_redirect_is_looked_at_like_a_url(target: str, folder: Folder) -> None:
    async with serving() as web:
        canary = Canary(web.port)
        web.pages["/"] = (302, {"location": target.format(port=web.port)}, b"")
        with pytest.raises(InputError) as caught:
            await folder.fetch(fetcher(web.port, only("127.0.0.2")), f"http://web.test:{web.port}/")
        assert str(caught.value).startswith(f"'http://web.test:{web.port}/': ")
        assert len(web.requests) == 1
        assert canary.connections() == 0
        canary.close()


async def test_only_listed_hosts_and_ports_are_fetched_from(folder: Folder) -> None:
    policy = FetchPolicy(hosts=("docs.test", ".wiki.test"))
    for url in ("https://docs.test/", "http://en.wiki.test/", "https://DOCS.test./"):
        policy.checked(url)
    for url in ("https://x.docs.test/", "https://wiki.test/", "https://evilwiki.test/"):
        with pytest.raises(InputError, match="does not fetch documents from there"):
            policy.checked(url)
    with pytest.raises(InputError, match="only these ports are fetched from: 80, 443"):
        policy.checked("https://docs.test:8443/")


# --- what is fetched -------------------------------------------------------------------------


@pytest.fixture
async def web() -> Any:
    async with serving() as found:
        yield found


async def test_a_document_arrives_in_a_file(web: Web, folder: Folder) -> None:
    body = bytes(range(256)) * 9000  # more than two blocks
    web.pages["/a.pdf?x=1"] = (200, {"content-type": "application/pdf"}, body)
    by = Fetcher(FetchPolicy(ports=(web.port,), allowed=only("127.0.0.2")), named)
    url = f"http://web.test:{web.port}/a.pdf?x=1#page=2"
    path = await by.fetch(url, folder.place, Allowance(2**22))
    assert path.read_bytes() == body
    assert path.suffix == ".pdf"
    ((asked, headers),) = web.requests
    assert asked == "/a.pdf?x=1"
    assert headers["host"] == f"web.test:{web.port}"
    assert headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & headers.keys()


async def test_redirects_are_followed_three_times(web: Web, folder: Folder) -> None:
    for i in range(4):
        web.pages[f"/{i}"] = (302 + i % 2, {"location": f"/{i + 1}"}, b"moved")
    web.pages["/4"] = (200, {"content-type": "text/markdown"}, b"# here")
    by = fetcher(web.port, only("127.0.0.2"))
    path = await folder.fetch(by, f"http://web.test:{web.port}/1")
    assert (path.suffix, path.read_bytes()) == (".md", b"# here")
    with pytest.raises(InputError, match="leads on more than 3 times"):
        await folder.fetch(by, f"http://web.test:{web.port}/0")


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ((404, {}, b"secret of the server"), "its server answers 404"),
        ((500, {}, b"secret"), "its server answers 500"),
        ((302, {}, b"secret"), "its server answers 302"),
        ((200, {"content-type": "image/png"}, b"x"), "'image/png'; name text"),
        ((200, {"content-encoding": "gzip"}, b"x"), "only compressed"),
        ((200, {"content-length": "3000000"}, b"x"), "larger than the 1 MiB"),
        ((200, {"content-length": "9" * 400}, b"x"), "HTTP|larger than the 1 MiB"),
        ((200, {"content-type": "text/plain", "content-length": "10"}, b"x"), "HTTP"),
        (HANG, "no public server answers"),
    ],
)
async def test_what_is_no_document_is_refused(
    page: Any, told: str, web: Web, folder: Folder
) -> None:
    web.pages["/"] = page
    by = fetcher(web.port, only("127.0.0.2"), most_bytes=2**20, silence_s=0.2)
    with pytest.raises(InputError, match=told) as caught:
        await by.fetch(f"http://web.test:{web.port}/", folder.place, Allowance(2**22))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("most", [1, 999, 2**20])
async def test_a_document_has_as_many_bytes_as_it_may_and_no_more(
    most: int, over: int, announced: bool, web: Web, folder: Folder
) -> None:
    body = b"x" * (most + over)
    length = {"content-length": str(len(body))} if announced else {}
    web.pages["/"] = (200, {"content-type": "text/plain", **length}, body)
    by, room = fetcher(web.port, only("127.0.0.2"), most_bytes=most), Allowance(2 * most)
    fetching = by.fetch(f"http://web.test:{web.port}/", folder.place, room)
    if over > 0:
        with pytest.raises(InputError, match="larger than"):
            await fetching
    else:
        assert (await fetching).read_bytes() == body


async def test_documents_of_one_query_have_a_bound_together(web: Web, folder: Folder) -> None:
    web.pages["/"] = (200, {"content-type": "text/plain"}, b"x" * 600)
    by, room = fetcher(web.port, only("127.0.0.2")), Allowance(1000)
    await by.fetch(f"http://web.test:{web.port}/", folder.place, room)
    with pytest.raises(InputError, match="too large together"):
        await by.fetch(f"http://web.test:{web.port}/", folder.place, room)


async def test_it_takes_no_longer_than_it_may(web: Web, folder: Folder) -> None:
    web.pages["/"] = HANG
    by = fetcher(web.port, only("127.0.0.2"), total_s=0.2, silence_s=60.0)
    with pytest.raises(InputError, match="no public server answers"):
        await folder.fetch(by, f"http://web.test:{web.port}/")


async def test_cancelling_it_closes_the_connection(web: Web, folder: Folder) -> None:
    web.pages["/"] = HANG
    by = fetcher(web.port, only("127.0.0.2"), silence_s=60.0)
    fetching = asyncio.create_task(folder.fetch(by, f"http://web.test:{web.port}/"))
    await web.asked.wait()
    fetching.cancel()
    async with asyncio.timeout(20):
        await web.left.wait()
    with pytest.raises(asyncio.CancelledError):
        await fetching


async def test_a_proxy_of_the_environment_is_not_used(
    web: Web, folder: Folder, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    web.pages["/"] = (200, {"content-type": "text/plain"}, b"direct")
    path = await folder.fetch(fetcher(web.port, only("127.0.0.2")), f"http://web.test:{web.port}/")
    assert path.read_bytes() == b"direct"
    assert canary.connections() == 0


@pytest.mark.parametrize(
    ("kind", "path", "suffix"),
    [
        ("text/html; charset=utf-8", "/", ".html"), ("application/pdf", "/download", ".pdf"),
        ("text/plain", "/a/README.md", ".md"), ("text/plain", "/notes", ".txt"),
        ("", "/x.pdf", ".pdf"), ("", "/x", ".txt"), ("application/octet-stream", "/x.PDF", ".pdf"),
        ("text/html", "/x.pdf", ".html"), ("application/ld+json", "/x", ".txt"),
        ("text/csv", "/x.exe", ".csv"),
        ("text/x-log", "/x.exe", ".txt"), ("message/rfc822", "/x", ".eml"),
        ("", "/x.docx", ".docx"),
    ],
)  # fmt: skip
def test_what_is_in_a_document_is_known_by_its_type(kind: str, path: str, suffix: str) -> None:
    assert suffix_of(kind, path, "u") == suffix


@pytest.mark.parametrize("kind", ["application/octet-stream", "video/mp4", "application/zip", "x"])
def test_what_could_not_be_read_is_not_fetched(kind: str) -> None:
    with pytest.raises(InputError, match="name text, HTML, PDF or an office file"):
        suffix_of(kind, "/x.bin", "u")


# --- TLS -------------------------------------------------------------------------------------


def certified(name: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext, list[str]]:
    """TLS of a server called `name`, of a client that trusts it, and the names asked for."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    (folder / "server.pem").write_bytes(private + made.public_bytes(pem))
    (folder / "trusted.pem").write_bytes(made.public_bytes(pem))
    server, asked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
    server.load_cert_chain(folder / "server.pem")
    server.sni_callback = lambda _, name, __: asked.append(name)
    return server, ssl.create_default_context(cafile=folder / "trusted.pem"), asked


async def test_the_name_is_what_is_certified_although_the_address_is_pinned(
    tmp_path: Path, folder: Folder
) -> None:
    server, client, asked = certified("web.test", tmp_path)
    async with serving(tls=server) as web:
        web.pages["/"] = (200, {"content-type": "text/plain"}, b"certified")
        policy = FetchPolicy(ports=(web.port,), allowed=only("127.0.0.2"))
        by = Fetcher(policy, named, client)
        path = await folder.fetch(by, f"https://web.test:{web.port}/")
        assert path.read_bytes() == b"certified"
        assert asked == ["web.test"]
        assert web.requests[0][1]["host"] == f"web.test:{web.port}"
        for url in (f"https://127.0.0.2:{web.port}/", f"https://other.test:{web.port}/"):
            with pytest.raises(InputError, match="no public server answers"):
                await folder.fetch(by, url)
        assert len(web.requests) == 1
