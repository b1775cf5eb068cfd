"""What the live driver does itself: tests that take their time, questions to people, and what is
known of a query that was begun before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from itertools import count
from typing import Any, Final, Protocol

from teola.engine import SequenceHandle
from teola.errors import EngineError
from teola.graph import Inquiry, Op, Primitive, ToolParams, WaitParams
from teola.graph.inquiry import UNKNOWN, WAIT_S
from teola.runtime.growing import Parts, is_heard
from teola.runtime.hosts.call import CallOutput
from teola.runtime.live.nesting import Caller, Place, calling
from teola.runtime.live.outcomes import cut_off
from teola.runtime.live.people import People
from teola.runtime.live.query import LiveQuery
from teola.runtime.live.steps import SLICE, Steps, key_of
from teola.runtime.observe.noting import working_for
from teola.schedule.events import Again, Completed, RunEvent

HOW: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "do": {"enum": ["repeat", "take", "fail"]},
        "result": {"description": "what it gave; with take"},
    },
    "required": ["do"],
    "additionalProperties": False,
}
"""What people may answer where it is not known whether something was done."""


class Drives(Protocol):
    """The live driver, as far as it is needed here."""

    loop: asyncio.AbstractEventLoop
    asking: set[People]
    parts: Parts[LiveQuery]

    def tell(self, run: str, event: RunEvent, now: float) -> None: ...

    def settle(self, query: LiveQuery, i: int, result: Mapping[str, Any], now: float) -> None:
        """A control primitive gave its outputs."""
        ...

    def undecided(self, query: LiveQuery, i: int, error: Exception, now: float) -> None: ...

    def lend(self, place: Place | None, change: int) -> None: ...

    def wake(self) -> None: ...


class Controls:
    """See the module."""

    def __init__(self, driver: Drives) -> None:
        self._driver = driver

    # --- tests that take their time ---------------------------------------------------------

    def ponder(
        self, query: LiveQuery, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]
    ) -> None:
        """Await the outputs of primitive `i`."""
        self._aside(query, i, self._ponder(query, i, work))

    async def _ponder(
        self, query: LiveQuery, i: int, work: Coroutine[Any, Any, Mapping[str, Any]]
    ) -> None:
        driver = self._driver
        caller = Caller(query, i, driver.lend)
        calling.set(caller)
        working_for.set((query.id,))
        try:
            result = await work
        except Exception as error:  # noqa: BLE001 - the driver's edge re-emits it as an event
            driver.undecided(query, i, error, driver.loop.time())
        else:
            self.decided(query, i, result, driver.loop.time())
        finally:
            caller.end()
        driver.wake()

    def decided(self, query: LiveQuery, i: int, result: Mapping[str, Any], now: float) -> None:
        """Primitive `i` gave its outputs, which are kept before anybody reads them if the query's
        steps are."""
        steps, op = query.terms.steps, query.plan.primitives[i].op
        if steps is None or op not in (Op.CONDITION, Op.WAIT):
            self._driver.settle(query, i, result, now)
        else:
            self._aside(query, i, self._kept(query, i, steps, result))

    async def _kept(
        self, query: LiveQuery, i: int, steps: Steps, result: Mapping[str, Any]
    ) -> None:
        driver = self._driver
        try:
            await steps.keep(steps.key(query.run, i), {"gives": result})
        except Exception as error:  # noqa: BLE001 - as above
            driver.undecided(query, i, error, driver.loop.time())
        else:
            driver.settle(query, i, result, driver.loop.time())
        driver.wake()

    def _aside(self, query: LiveQuery, i: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._driver.loop.create_task(work)
        query.deciding.add(task)
        task.add_done_callback(query.deciding.discard)

    # --- people -----------------------------------------------------------------------------

    def ask(self, query: LiveQuery, i: int, now: float) -> None:
        """Ask what primitive `i` wants to know."""
        p = query.plan.primitives[i]
        params = p.params
        assert isinstance(params, WaitParams)
        try:
            words = params.words(query.store.resolve(i))
            inquiry = self._inquiry(query, i, params.kind, *words)
        except Exception as error:  # noqa: BLE001 - a component's own code
            self._driver.undecided(query, i, error, now)
            return
        port = p.outputs[0]

        def then(answer: Any) -> None:
            query.asking.pop(i, None)
            self.decided(query, i, {port: answer}, self._driver.loop.time())
            self._driver.wake()

        self._put(query, i, inquiry, params.wait_s, then)

    def _inquiry(
        self, query: LiveQuery, i: int, kind: str, question: str, schema: Any, about: Any
    ) -> Inquiry:
        people, p = query.terms.people, query.plan.primitives[i]
        if people is None:
            raise EngineError("nobody can be asked here")
        root = people.root
        id = key_of(root, query.run, i)
        return Inquiry(id, root, kind, p.component, question, schema, about)

    def _put(
        self,
        query: LiveQuery,
        i: int,
        inquiry: Inquiry,
        wait_s: float,
        then: Callable[[Any], None],
    ) -> None:
        people = query.terms.people
        assert people is not None

        def fail(error: Exception) -> None:
            query.asking.pop(i, None)
            self._driver.undecided(query, i, error, self._driver.loop.time())
            self._driver.wake()

        query.asking[i] = inquiry.id
        self._driver.asking.add(people)
        people.ask(inquiry, query, wait_s, then, fail)

    # --- what was done before ---------------------------------------------------------------

    def recall(self, query: LiveQuery, i: int, now: float) -> None:
        """Primitive `i` gives what it gave before; where that is not known, people are asked."""
        steps, p = query.terms.steps, query.plan.primitives[i]
        assert steps is not None
        try:
            if query.plan.members[i]:
                self._call(query, i, steps.result(steps.key(query.run, i)), now)
            elif p.op in (Op.TOOL_CALL, Op.CONDITION, Op.WAIT):
                self._step(query, i, steps, now)
            else:
                self._piece(query, i, now)
        except Exception as error:  # noqa: BLE001 - what was kept may not fit any more
            self._driver.undecided(query, i, error, now)

    def _piece(self, query: LiveQuery, i: int, now: float) -> None:
        """A piece of a prompt whose call is known: nobody has to compute it."""
        before = query.run.before(i)
        parts = query.store.values[before]["sequence"].parts if before >= 0 else ()
        handle = SequenceHandle("", -1, (*parts, *query.store.prompt(i)))
        self._driver.settle(query, i, {"sequence": handle}, now)

    def _call(self, query: LiveQuery, head: int, step: Mapping[str, Any], now: float) -> None:
        driver, plan = self._driver, query.plan
        if step["cut"]:
            query.cut.add(head)
        driver.settle(query, head, {"sequence": True}, now)
        members = plan.members[head]

        def deliver(k: int, result: Mapping[str, Any]) -> None:
            if query.run.state is None and not query.run.ended(members[k]):
                counts = query.store.put(members[k], result)
                query.trace.ended(members[k], 0, now, "known")
                driver.tell(query.id, Completed(members[k], counts), now)

        places = count()

        def wrote(item: Any) -> None:
            driver.parts.written(query, head, next(places), item, now)

        heard = wrote if is_heard(query, head) else None
        output = CallOutput([plan.primitives[m] for m in members], deliver, heard)
        output.cut = step["cut"]
        if query.streams and any(map(query.run.answers, members)):
            query.tell_written(plan.primitives[members[0]], step["text"])
        output.feed(step["text"])
        output.close()

    def _step(self, query: LiveQuery, i: int, steps: Steps, now: float) -> None:
        p, key = query.plan.primitives[i], steps.key(query.run, i)
        result = steps.result(key)
        if result is None:
            self._unknown(query, i, p, steps, now)
        elif "answer" in result and p.op is Op.WAIT:
            self._driver.settle(query, i, {p.outputs[0]: result["answer"]}, now)
        elif "answer" in result:
            self._resolved(query, i, p, steps, result["answer"])
        elif "error" in result:
            self._driver.undecided(query, i, EngineError(result["error"]), now)
        else:
            self._driver.settle(query, i, result["gives"], now)

    def _unknown(self, query: LiveQuery, i: int, p: Primitive, steps: Steps, now: float) -> None:
        """What primitive `i` does may have been done, or not."""
        params, key = p.params, steps.key(query.run, i)
        assert isinstance(params, ToolParams)
        inputs = query.store.resolve(i)
        cut = any(other.startswith(key + SLICE) for other in steps.found)
        if not cut and params.repeatable is not None and params.repeatable(inputs):
            self._again(query, i, now)
            return
        told = f"the server ended while {p.component!r} was at work: what it does may have happened"
        if steps.on_unknown == "fail":
            raise cut_off(p.component)
        question = f"{told}. Shall it be repeated, is its result to be taken, or is it to fail?"
        about = {"component": p.component, "inputs": list(inputs)}
        inquiry = self._inquiry(query, i, UNKNOWN, question, HOW, about)

        def then(answer: Any) -> None:
            query.asking.pop(i, None)
            self._resolved(query, i, p, steps, answer)

        self._put(query, i, inquiry, WAIT_S, then)

    def _resolved(
        self, query: LiveQuery, i: int, p: Primitive, steps: Steps, answer: Mapping[str, Any]
    ) -> None:
        driver, now = self._driver, self._driver.loop.time()
        if answer["do"] == "repeat":
            self._again(query, i, now)
        elif answer["do"] == "fail":
            driver.undecided(query, i, EngineError("it was cut off, and is not done again"), now)
        else:
            given = answer.get("result")
            result = {p.outputs[0]: given} if len(p.outputs) == 1 else given
            if isinstance(result, dict) and result.keys() >= set(p.outputs):
                self._aside(query, i, self._kept(query, i, steps, result))
            else:
                told = f"its result must be a mapping with {', '.join(p.outputs)}"
                driver.undecided(query, i, EngineError(told), now)
        driver.wake()

    def _again(self, query: LiveQuery, i: int, now: float) -> None:
        self._driver.tell(query.id, Again(i), now)


def recalling(query: LiveQuery) -> None:
    """Before it begins: it is not to do again what is known of it."""
    if query.terms.steps is not None:
        query.run.known = query.terms.steps.known(query.run)
