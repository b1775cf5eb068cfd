"""Agency: an Agent, as far as a run of it needs it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from teola.tools.toolbox import Toolbox
from teola.workflow.build import Builder
from teola.workflow.components.agent_tools import Box
from teola.workflow.components.agent_turn import AgentConfig


class Makes(Protocol):
    """Makes what an agent's runs need of their own; see PartsMaker."""

    @property
    def asks(self) -> bool:
        """Whether some of its tools have to be asked for."""
        ...

    @property
    def colleagues(self) -> Collection[str]:
        """Names of agents that it may hand over to."""
        ...

    def box(self, offered: Any, client: Mapping[str, Any] | None) -> Box:
        """What a run may call."""
        ...

    def part(self, what: str, box: Box, must: tuple[str, ...] = ()) -> Builder:
        """The template of a part for this box."""
        ...


class Agency(Protocol):
    """An agent, as far as a run of it needs it; see AgentGrower."""

    @property
    def toolbox(self) -> Toolbox: ...

    @property
    def config(self) -> AgentConfig: ...

    @property
    def maker(self) -> Makes: ...

    @property
    def shows(self) -> bool: ...
