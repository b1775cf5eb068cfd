"""check_policy: does a batching or routing policy keep its promises, whatever happens?

A real queue of the scheduler asks the policy, and what happens is random: work comes and is
withdrawn, batches end or fail, instances die and come back, timers fire. Then everything is well
for as long as it takes, and nothing may be left. The time is made up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from typing import Any, Final, TypeAlias

from teola.errors import InputError
from teola.policies import batching, routing
from teola.policies.batching.base import BatchingPolicy, is_whole
from teola.policies.routing.base import RoutingPolicy
from teola.registry import lacking, methods_of
from teola.testing.checking import ContractBroken
from teola.testing.queue_events import NEWCOMERS_LIKE, EqualWorks, Newcomers, RandomCase

CASES: Final = 20
Factory: TypeAlias = "Callable[[], BatchingPolicy | RoutingPolicy]"


def check_policy(policy: Factory, *, cases: int = CASES, seed: int = 0) -> None:
    """Let a batching or a routing policy schedule random events. policy: its class, or a function
    that makes a fresh one (`partial(Mine, weight=2)`).

    In each case some instances of an engine that takes batches, or of a language model, get about
    60 works of several queries, which have all that a policy may go by.

    Raises ContractBroken, which names the promise and the case, where

    * a method raises, or what it returns cannot be: an instance that is not, a slice of what is not
      queued, a batch of two lanes, for another instance, or larger than its room;
    * asking changes something: `choose`, asked twice, answers otherwise;
    * a work is lost, sent twice, or never sent though everything is well, or though only newcomers
      keep coming;
    * the same events have other consequences the second time, or works that are all alike are not
      sent in the order in which they came.

    Raises InputError for what is no policy of these two kinds.
    """
    one = policy()
    name = type(one).__name__
    if not lacking(one, methods_of(BatchingPolicy)):
        kind = "batching"
        pair = partial(_batching, policy)
    elif not lacking(one, methods_of(RoutingPolicy)):
        kind = "routing"
        pair = partial(_routing, policy)
    else:
        raise InputError(
            f"check_policy checks batching and routing policies, and {name} has the methods of "
            "neither"
        )
    for case in range(seed, seed + cases):
        where = f"{kind} policy {name}, case {case}"
        first = RandomCase(case, *pair(), where).run()
        again = RandomCase(case, *pair(), where).run()
        if first != again:
            pairs = zip_longest(first, again, fillvalue="nothing")
            told, differs = next((a, b) for a, b in pairs if a != b)
            raise ContractBroken(
                f"{where}: the same events have other consequences the second time: "
                f"{told} and then {differs}"
            )
    if kind == "batching":
        EqualWorks(*pair(), f"batching policy {name}").run()
    for continuous in (False, True):
        for like in NEWCOMERS_LIKE:
            where = f"{kind} policy {name}, newcomers that are {like}"
            Newcomers(like, continuous, *pair(), where).run()


def _batching(policy: Callable[[], Any]) -> tuple[BatchingPolicy, RoutingPolicy]:
    made = policy()
    return made, made if is_whole(made) else routing.make("least_loaded")


def _routing(policy: Callable[[], Any]) -> tuple[BatchingPolicy, RoutingPolicy]:
    return batching.make("fifo"), policy()
