"""The simulator: the same core in virtual time."""

from teola.runtime.sim.sim import Sim, SimResult

__all__ = ["Sim", "SimResult"]
