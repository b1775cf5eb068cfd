"""Deterministic simulation: the live driver, hosts and supervisor in virtual time, with faults.

What serves runs here unchanged, from the optimiser's plan to the stream of tokens. Only three
things are not real: the clock (`clock`), the wire to engines in other processes (`far`), which is
where faults are injected, and the engines' models (`engines`), whose answers are hashes. A run is a
function of its seed. `python -m tests.under_faults SEED` replays one and shows what happened.
"""
