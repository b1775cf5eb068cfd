"""What a live call costs: what is reserved for it, and what its tries took.

A try that failed is paid for, too: with what its engine told of it, else with its prompt and what
it wrote until then, counted as it is estimated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import ceil
from typing import NamedTuple, cast

from teola.engine import Usage
from teola.graph import DecodeParams
from teola.policies.ledger import Reservation
from teola.policies.work import Size, WorkKey
from teola.price import FREE, Price
from teola.runtime.billing import Billed, Billing
from teola.runtime.hosts.local import LocalHost
from teola.runtime.live.call import LiveCall
from teola.runtime.live.query import LiveQuery
from teola.runtime.values import CHARACTERS_PER_TOKEN

Hosts = Mapping[tuple[str, int], LocalHost]


class Try(NamedTuple):
    """One try of a call: on which instance, and what was reserved for it."""

    called: LiveCall
    place: tuple[str, int]
    made: Reservation


class Paying:
    """See the module. prices: by model, or by engine where its model has no name. own: of instances
    that have prices of their own."""

    def __init__(self, hosts: Hosts, billing: Billing) -> None:
        self._hosts, self._billing = hosts, billing
        self.prices: Mapping[str, Price] = {}
        self.own: Mapping[tuple[str, int], Price] = {}
        self._tries: dict[WorkKey, Try] = {}
        """Under way, of calls that are paid from a budget."""

    def price(self, engine: str, instance: int) -> Price | None:
        """Price of the model of an instance; None: nobody knows it."""
        if (own := self.own.get((engine, instance))) is not None or not self.prices:
            return own
        host = self._hosts.get((engine, instance))
        model = host.named.model if host is not None and host.named is not None else None
        return self.prices.get(model or engine, self.prices.get(engine))

    def dearest(self, engine: str) -> Price | None:
        """The most that each kind of tokens costs at an instance of an engine, so that no instance
        costs more, whatever a call is made of; None where one's price is not known."""
        if not (self.prices or self.own):
            return None
        dearest: Price | None = None
        instance = 0
        while (engine, instance) in self._hosts:
            price = self.price(engine, instance)
            if price is None:
                return None
            prompt = max(price.prompt, price.cached or 0.0)
            if dearest is None:
                dearest = Price(prompt, price.answer)
            else:
                dearest = Price(max(dearest.prompt, prompt), max(dearest.answer, price.answer))
            instance += 1
        return dearest

    def billed(self, query: LiveQuery, i: int, size: Size) -> Billed | None:
        """The call that primitive `i` leads, to be paid for; None: it leads none."""
        plan, ledger = query.plan, query.run.asker.budget
        members = plan.members[i]
        if not members or ledger is None:
            return None
        decode = cast("DecodeParams", plan.primitives[members[0]].params)
        spec, measured = plan.specs[i], query.tokens.get(i)
        tokens = whole_prompt(query, i) if measured is None else measured
        price = self.dearest(spec.engine)
        kept = query.kept_for_answer()
        exact = measured is not None
        return Billed((query.id, i), spec, size, ledger, price, tokens, exact, decode, kept)

    def begins(
        self, query: LiveQuery, i: int, called: LiveCall, place: tuple[str, int]
    ) -> Reservation:
        """A try of the call that primitive `i` leads begins: what it may take. Raises BudgetSpent
        where a further one has no room."""
        key = query.id, i
        if (earlier := self._tries.get(key)) is not None:  # given up, and not yet stopped
            self.failed(query, i, *earlier, asyncio.CancelledError())
        call = self.billed(query, i, Size(0))
        assert call is not None
        reserved = self._billing.begins(call)
        self._tries[key] = Try(called, place, reserved)
        return reserved

    def _is_over(self, query: LiveQuery, i: int, made: Reservation) -> bool:
        """A try ends; whether it has been paid for before, as the next one began."""
        current = self._tries.get((query.id, i))
        if current is not None and current.made is made:
            del self._tries[query.id, i]
        return made.closed

    def recalled(self, query: LiveQuery, i: int) -> None:
        """What primitive `i` gave is known from an earlier run of its query, which paid for it."""
        ledger, steps = query.run.asker.budget, query.terms.steps
        if ledger is None or steps is None or not query.plan.members[i]:
            return
        step = steps.result(steps.key(query.run, i))
        written = ceil(len(step["text"]) / CHARACTERS_PER_TOKEN) if step else 0
        price = self.dearest(query.plan.specs[i].engine) or FREE
        ledger.took_before(whole_prompt(query, i), written, price)

    def settled(
        self,
        query: LiveQuery,
        i: int,
        called: LiveCall,
        place: tuple[str, int],
        made: Reservation | None,
    ) -> None:
        """A call has ended well. made: what was reserved for it."""
        if made is not None and self._is_over(query, i, made):
            return
        usage, price = called.usage, self.price(*place)
        if made is not None:
            if usage.prompt_tokens and i not in query.tokens:
                self._billing.counted(place[0], whole_prompt(query, i), usage.prompt_tokens)
            usage = _about(query, i, called)
            made.settle(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, price)
        query.trace.used(usage, i, None if price is None else _cost(price, usage))

    def failed(
        self,
        query: LiveQuery,
        i: int,
        called: LiveCall,
        place: tuple[str, int],
        made: Reservation | None,
        error: BaseException,
    ) -> None:
        """A try has failed, or was given up."""
        if made is not None and self._is_over(query, i, made):
            return
        usage, price = Usage(), self.price(*place)
        aborted = isinstance(error, asyncio.CancelledError)
        if called.started or (aborted and made is not None):
            usage = _about(query, i, called)
            query.trace.used(usage, i, None if price is None else _cost(price, usage))
        if made is not None:
            made.settle(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, price)


def whole_prompt(query: LiveQuery, i: int) -> int:
    """Tokens of the prompt of the call that `i` leads, with all that stands before its own part,
    estimated: at four characters each, of texts that are not ASCII at one."""
    tokens, at = 0, i
    while at >= 0:
        for k in (*query.run.fused.get(at, ()), at):
            if k in query.estimated:
                tokens += query.estimated[k]
                continue
            size = 0
            for part in query.store.prompt(k):
                text = part.text
                size += ceil(len(text) / (CHARACTERS_PER_TOKEN if text.isascii() else 1))
            query.estimated[k] = size
            tokens += size
        at = query.run.before(at)
    return tokens


def _cost(price: Price, usage: Usage) -> float:
    return price.cost(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


def _about(query: LiveQuery, i: int, called: LiveCall) -> Usage:
    """What a try took whose engine does not tell, or did not come to it."""
    usage = called.usage
    if usage.prompt_tokens:
        return usage
    prompt = query.tokens[i] if i in query.tokens else whole_prompt(query, i)
    return Usage(prompt, ceil(called.characters / CHARACTERS_PER_TOKEN))
