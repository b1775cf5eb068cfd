"""Which IP addresses are everybody's: what a server may connect to because a client says so.

Everything else is somebody's inside: loopback, private networks, link-local (where clouds answer
questions about credentials), carriers' networks, and whatever the forms that carry one address
inside another would lead to. `ipaddress` knows most of it; what it has learnt only in later
versions of Python, or counts as global though it serves nobody from outside, is listed here.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

Address = IPv4Address | IPv6Address

_INSIDE_4: Final = tuple(
    map(
        IPv4Network,
        (
            "192.0.0.0/24",  # protocol assignments, Oracle's metadata among them
            "192.88.99.0/24",  # relays of 6to4
            "168.63.129.16/32",  # Azure's services for its own machines
        ),
    )
)
_GLOBAL_6: Final = IPv6Network("2000::/3")
_INSIDE_6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",
            "2002::/16",  # 6to4: an IPv4 address, through somebody's relay
            "3fff::/20",
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


def public(address: Address) -> bool:
    """Whether anybody in the world may expect to be answered at `address`.

    An address that stands for an IPv4 address (mapped, NAT64) is as public as that one.
    """
    if isinstance(address, IPv4Address):
        plain = address.is_global and not address.is_multicast and not address.is_reserved
        return plain and not any(address in network for network in _INSIDE_4)
    if address.ipv4_mapped is not None:
        return address.scope_id is None and public(address.ipv4_mapped)
    if address in _NAT64:
        return public(IPv4Address(int(address) & 0xFFFFFFFF))
    if address.scope_id is not None or address not in _GLOBAL_6 or not address.is_global:
        return False
    return not any(address in network for network in _INSIDE_6)
