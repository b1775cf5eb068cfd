"""Servers of this machine are asked without the environment's proxies."""

from __future__ import annotations

import httpx
import pytest

from teola.loopback import is_loopback, without_proxy


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "a.localhost", "127.8.0.1", "::1"])
def test_addresses_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "localhost.example", "10.0.0.1", "127.example", "2001:db8::1"]
)
def test_addresses_of_others(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "direct"),
    [
        ("http://127.0.0.1:9/v1", True),
        ("http://localhost:9", True),
        ("http://[::1]:9/v1", True),
        ("http://example.org:9", False),
    ],
)
def test_a_client_asks_the_proxy_for_other_hosts_only(
    url: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    with httpx.Client(mounts=without_proxy(url)) as client:
        chosen = client._transport_for_url(httpx.URL(url))
        assert (chosen is client._transport) is direct
        elsewhere = client._transport_for_url(httpx.URL("http://example.com"))
        assert elsewhere is not client._transport
