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
from teola.runtime.hosts.call import CallOutput
from teola.runtime.in_flight import is_heard
from teola.runtime.live.nesting import Caller, InstancePlace, calling
from teola.runtime.live.outcomes import cut_off
from teola.runtime.live.people import People
from teola.runtime.live.query import LiveQuery
from teola.runtime.live.steps import SLICE, Steps, key_of
from teola.runtime.observe.excerpts import excerpts
from teola.runtime.observe.noting import working_for
from teola.runtime.outputs import misshapen
from teola.schedule.events import Again, Completed, RunEvent

TAKE: Final = "take"


class Drives(Protocol):
    """The live driver, as far as it is needed here."""

    loop: asyncio.AbstractEventLoop
    asking: set[People]

    def tell(self, run: str, event: RunEvent, now: float) -> None: ...

    def decided(self, query: LiveQuery, i: int, result: Mapping[str, Any], now: float) -> None: ...

    def settle(self, query: LiveQuery, i: int, result: Mapping[str, Any], now: float) -> None: ...

    def undecided(self, query: LiveQuery, i: int, error: Exception, now: float) -> None: ...

    def item_written(self, query: LiveQuery, head: int, k: int, item: Any, now: float) -> bool: ...

    def lend(self, place: InstancePlace | None, change: int) -> None: ...

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
            driver.decided(query, i, result, driver.loop.time())
        finally:
            caller.end()
        driver.wake()

    def keeps_first(self, query: LiveQuery, i: int, result: Mapping[str, Any]) -> bool:
        """Whether these outputs of primitive `i` are a step that is kept; they are settled when
        that is done."""
        steps, op = query.terms.steps, query.plan.primitives[i].op
        if steps is None or op not in (Op.CONDITION, Op.WAIT):
            return False
        self._aside(query, i, self._kept(query, i, steps, result))
        return True

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
            question, schema, about = params.words(query.store.resolve(i))
            asked = self._asked(query, i, about)
            inquiry = self._inquiry(query, i, params.kind, question, schema, asked)
        except Exception as error:  # noqa: BLE001 - a component's own code
            self._driver.undecided(query, i, error, now)
            return
        port = p.outputs[0]

        def then(answer: Any) -> None:
            query.asking.pop(i, None)
            output = params.read(answer, inquiry.about) if params.read else answer
            self._driver.decided(query, i, {port: output}, self._driver.loop.time())
            self._driver.wake()

        self._put(query, i, inquiry, params.wait_s, then)

    def _asked(self, query: LiveQuery, i: int, about: Any) -> Any:
        """What the question of primitive `i` is about, as it was when it was first asked."""
        steps = query.terms.steps
        return about if steps is None else steps.asked(steps.key(query.run, i), about)

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
        end = step.get("end", "length" if step.get("cut") else "")
        self.answer(query, head, step["text"], end, now)

    def answer(self, query: LiveQuery, head: int, text: str, end: str, now: float) -> None:
        """The call that `head` leads gives this text, which is known, and ends as `end` says."""
        driver, plan = self._driver, query.plan
        if end:
            query.ends[head] = end
        query.finishes[head] = end if end in ("length", "refusal") else "stop"
        driver.settle(query, head, {"sequence": True}, now)
        members = plan.members[head]

        def deliver(k: int, result: Mapping[str, Any]) -> None:
            if query.run.state is None and not query.run.ended(members[k]):
                counts = query.store.put(members[k], result)
                query.trace.ended(members[k], 0, now, "known")
                driver.tell(query.id, Completed(members[k], counts), now)

        places = count()

        def wrote(item: Any) -> None:
            driver.item_written(query, head, next(places), item, now)

        heard = wrote if is_heard(query, head) else None
        output = CallOutput([plan.primitives[m] for m in members], deliver, heard)
        output.cut = end == "length"
        if query.streams and any(map(query.run.answers, members)):
            query.tell_written(plan.primitives[members[0]], text)
        output.feed(text)
        output.close()

    def _step(self, query: LiveQuery, i: int, steps: Steps, now: float) -> None:
        p, key = query.plan.primitives[i], steps.key(query.run, i)
        result = steps.result(key)
        if result is None:
            self._unknown(query, i, p, steps, now)
        elif "answer" in result and p.op is Op.WAIT:
            self._driver.settle(query, i, {p.outputs[0]: self._read(query, i, result)}, now)
        elif "answer" in result:
            self._resolved(query, i, p, steps, result["answer"])
        elif "error" in result:
            self._driver.undecided(query, i, EngineError(result["error"]), now)
        else:
            self._driver.settle(query, i, result["gives"], now)

    def _read(self, query: LiveQuery, i: int, result: Mapping[str, Any]) -> Any:
        """The output of a question that was answered while the query was nowhere."""
        params = query.plan.primitives[i].params
        assert isinstance(params, WaitParams)
        if params.read is None:
            return result["answer"]
        _, _, about = params.words(query.store.resolve(i))
        return params.read(result["answer"], self._asked(query, i, about))

    def _unknown(self, query: LiveQuery, i: int, p: Primitive, steps: Steps, now: float) -> None:
        """What primitive `i` does may have been done, or not."""
        params, key = p.params, steps.key(query.run, i)
        assert isinstance(params, ToolParams)
        inputs = query.store.resolve(i)
        cut = any(other.startswith(key + SLICE) for other in steps.found)
        if not cut and params.repeatable is not None and params.repeatable(inputs):
            self._again(query, i, now)
            return
        if steps.on_unknown == "fail":
            raise cut_off(p.component)
        about = _about(p, inputs, query.terms.secrets.hidden)
        worked = f"tool {about['tool']!r}" if "tool" in about else repr(p.component)
        question = (
            f"the server ended while {worked} was at work: what it does may have happened. Shall "
            "it be repeated, is its result to be taken, or is it to fail?"
        )
        schema = _how(p, query.store.items(i))
        inquiry = self._inquiry(query, i, UNKNOWN, question, schema, about)

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
            result = _taken(p, query.store.resolve(i), answer.get("result"))
            wrong = misshapen(p, query.store.items(i), result)
            if wrong is None:
                self._aside(query, i, self._kept(query, i, steps, result))
            else:  # an answer that an older version accepted
                driver.undecided(query, i, wrong, now)
        driver.wake()

    def _again(self, query: LiveQuery, i: int, now: float) -> None:
        self._driver.tell(query.id, Again(i), now)


def _about(
    p: Primitive, inputs: Mapping[str, Any], hide: Callable[[str], str]
) -> Mapping[str, Any]:
    """What people are told of a call with these inputs."""
    assert isinstance(p.params, ToolParams)
    by_hand = p.params.by_hand
    if by_hand is None:
        return {"component": p.component, "inputs": excerpts(inputs, hide)}
    tool, arguments = by_hand.about(inputs)
    return {"tool": tool, "arguments": excerpts(arguments, hide)}


def _how(p: Primitive, items: int) -> Mapping[str, Any]:
    """JSON schema of what people may answer where it is not known what became of a call for `items`
    items."""
    params = p.params
    assert isinstance(params, ToolParams)
    schemas = dict(zip(p.outputs, params.schemas or ({},) * len(p.outputs), strict=True))
    if p.batchable:
        one_each = {"type": "array", "minItems": items, "maxItems": items}
        schemas = {port: {**schema, **one_each} for port, schema in schemas.items()}
    result: Mapping[str, Any] = {
        "type": "object",
        "properties": schemas,
        "required": [*schemas],
        "additionalProperties": False,
    }
    if len(schemas) == 1:
        (result,) = schemas.values()
    return {
        "type": "object",
        "properties": {
            "do": {"enum": ["repeat", TAKE, "fail"]},
            "result": {**result, "description": "what it gave; with take"},
        },
        "required": ["do"],
        "additionalProperties": False,
        "if": {"properties": {"do": {"const": TAKE}}},
        "then": {"required": ["result"]},
        "else": {"maxProperties": 1},
    }


def _taken(p: Primitive, inputs: Mapping[str, Any], value: Any) -> Any:
    """The outputs of a call of which people say that it gave `value`."""
    assert isinstance(p.params, ToolParams)
    by_hand = p.params.by_hand
    if by_hand is not None:
        return {p.outputs[0]: by_hand.output(inputs, value)}
    return {p.outputs[0]: value} if len(p.outputs) == 1 else value


def recalling(query: LiveQuery) -> None:
    """Before it begins: it is not to do again what is known of it."""
    if query.terms.steps is not None:
        query.run.known = query.terms.steps.known(query.run)
