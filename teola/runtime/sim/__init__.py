"""The simulator: the same core in virtual time."""

from teola.runtime.sim.sim import Sim, SimulatedQuery

__all__ = ["Sim", "SimulatedQuery"]
