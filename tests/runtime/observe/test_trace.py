"""A trace that is looked at while its query goes on."""

from __future__ import annotations

from teola.engine import Usage
from teola.profile import paper
from teola.runtime.observe.trace import Trace
from teola.runtime.optimiser import Optimiser
from teola_apps.naive_rag import app


def test_a_copy_stays_as_it_was() -> None:
    plan = Optimiser(app.builder, paper("13b")).plan({}, {"chunks": 4})
    trace = Trace("q", "naive-rag", plan, 10.0)
    trace.step("load", 10.0, 11.0)
    trace.sent(0, 0, 4, 11.0, 11.5, 0, 1, 1)
    copy = trace.copy()
    before = copy.to_json()
    assert before == trace.to_json()
    assert [batch.at for batch in copy.batches()] == [11.5]
    trace.step("more", 11.0, 12.0)
    trace.ended(0, 0, 12.0)
    trace.sent(1, 0, 1, 12.0, 12.5, 0, 2, 1)
    trace.used(Usage(3, 4), 1)
    trace.finish("ok", 13.0)
    assert copy.to_json() == before
    assert len(list(copy.batches())) == 1
    assert (copy.state, copy.calls) == ("running", {})
