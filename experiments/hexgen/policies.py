"""The policies that are compared, by the names that the rows have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

ALPHA: Final = 0.2
"""The paper's example."""
ALPHAS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


class Compared(NamedTuple):
    """A pair of policies. tuned: alpha is tuned while it runs."""

    name: str
    batching: str
    routing: str
    batching_options: Mapping[str, Any] = {}
    routing_options: Mapping[str, Any] = {}
    tuned: bool = False


def _balanced(name: str, batching: str, alpha: float, tuned: bool = False) -> Compared:
    return Compared(name, batching, "workload_balanced", {}, {"alpha": alpha}, tuned)


OURS: Final = "ours"
RR_FCFS: Final = "rr_fcfs"
WB_FCFS: Final = "wb_fcfs"
WB_PQ: Final = "wb_pq"
TUNED: Final = "wb_pq_tuned"
SWEEP: Final = tuple(f"wb_pq_{alpha:.1f}" for alpha in ALPHAS)

POLICIES: Final = {
    one.name: one
    for one in (
        Compared(RR_FCFS, "fifo", "round_robin_early"),
        Compared("rr_pq", "urgency", "round_robin_early"),
        _balanced(WB_FCFS, "fifo", ALPHA),
        _balanced(WB_PQ, "urgency", ALPHA),
        *(
            _balanced(name, "urgency", alpha)
            for name, alpha in zip(SWEEP, ALPHAS, strict=True)
            if alpha != ALPHA
        ),
        _balanced(TUNED, "urgency", 0.0, tuned=True),
        Compared("least_loaded", "fifo", "least_loaded"),
        Compared("critical_path", "critical_path", "least_loaded"),
        Compared("sjf", "sjf", "least_loaded"),
        Compared("edf", "edf", "least_loaded"),
        Compared("least_slack", "least_slack", "least_loaded"),
        Compared(OURS, "paced", "paced"),
        Compared("paced_fcfs", "paced_fcfs", "paced_fcfs"),
        _balanced("work_edf", "edf", 0.0),
    )
}
"""wb_pq_0.2 of the sweep is wb_pq."""
