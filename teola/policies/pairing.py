"""The two policies of a queue by their names: one object for both where a policy is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teola.errors import InputError
from teola.policies import batching as batching_policies
from teola.policies import routing as routing_policies
from teola.policies.batching.base import BatchingPolicy, is_whole
from teola.policies.preferring import check_late, preferring
from teola.policies.routing.base import RoutingPolicy


def pair(
    batching: str,
    options: Mapping[str, Any],
    routing: str,
    routing_options: Mapping[str, Any],
) -> tuple[BatchingPolicy, RoutingPolicy]:
    """Fresh policies. Of one that is whole, options may be given at either place. Which
    instances are preferred (`preferring`) is no option of theirs.

    Raises UnknownName, and InputError also where only one place names a policy that is whole.
    """
    policy = batching_policies.make(batching, **options)
    prefer, routing_options = preferring(routing_options)
    if not is_whole(policy):
        router = routing_policies.make(routing, **routing_options)
        if is_whole(router):
            raise InputError(_half("routing", routing, "batching", batching))
        check_late(prefer, routing, router, whole=False)
        return policy, router
    if routing != batching:
        raise InputError(_half("batching", batching, "routing", routing))
    if options and routing_options and options != routing_options:
        raise InputError(
            f"policy {batching!r} is one for batching and routing, but its options differ: "
            f"{dict(options)} and {dict(routing_options)}; give them once"
        )
    made: Any = batching_policies.make(batching, **(options or routing_options))
    check_late(prefer, routing, made, whole=True)
    return made, made


def _half(place: str, name: str, other: str, there: str) -> str:
    return (
        f"{place} policy {name!r} is order and routing in one, but {other} is {there!r}: set "
        f"{other} to {name!r}, too"
    )
