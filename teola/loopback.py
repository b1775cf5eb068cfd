"""Addresses of this machine, which no proxy is asked for: to a proxy, `127.0.0.1` is the machine
that it runs on. httpx and urllib ask the environment's proxy for all hosts but those of `NO_PROXY`.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host's name or address means the machine that asks."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def without_proxy(url: str) -> dict[str, None]:
    """`mounts` of an httpx client whose server is at `url`: none of the environment's proxies where
    that is on this machine."""
    host = urlsplit(url).hostname or ""
    if not is_loopback(host):
        return {}
    return {f"all://[{host}]" if ":" in host else f"all://{host}": None}
