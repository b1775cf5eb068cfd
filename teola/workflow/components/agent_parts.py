"""Templates of an agent's parts: those for its own tools, and those for what a run was offered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from teola.errors import InputError
from teola.graph import QUERY, Ref
from teola.workflow.block import Feed
from teola.workflow.build import Builder
from teola.workflow.component import Component, Config
from teola.workflow.components.agent_tools import AgentTools, Box
from teola.workflow.part_template import PartTemplate

OWN: Final = ("transcript", "call", "earlier")
"""What a part is given of its own."""
MOST_MADE: Final = 256

MakePart = Callable[[str, Box, tuple[str, ...], Config], Component]
"""A part's component: which one, for what box, tools of which one has to be called, and how."""


class AgentParts:
    """Those of one agent. called: its name. tools: what it may call. make: see MakePart. Each
    template is made once, as long as there are not too many."""

    def __init__(self, called: str, tools: AgentTools, make: MakePart) -> None:
        self.called, self.tools, self._make = called, tools, make
        self._made: dict[tuple[Any, ...], PartTemplate] = {}

    def template(
        self, what: str, config: Config, box: Box | None = None, must: tuple[str, ...] = ()
    ) -> PartTemplate:
        """For this box; None: the agent's own tools."""
        box = box or Box(self.tools.own)
        key = (what, config, box.digest, must)
        part = self._made.get(key)
        if part is None:
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            component = self._make(what, box, must, config)
            part = self._made[key] = PartTemplate(
                self.called, component, OWN, tuple(component.outputs)
            )
        return part


@dataclass(frozen=True)
class PartsMaker:
    """The parts of an agent under one configuration, where there are these inputs: each with
    whether it is a list."""

    parts: AgentParts
    config: Any
    inputs: tuple[tuple[str, bool], ...]
    colleagues: Collection[str]

    @property
    def asks(self) -> bool:
        return self.parts.tools.asks

    def box(self, offered: Any, client: Mapping[str, Any] | None) -> Box:
        """What a run may call. Raises InputError, UnknownName."""
        if client is not None and not isinstance(client, Mapping):
            raise InputError("client_tools must be an object")
        begun = client is not None and client.get("exchange")  # what had to be called first was
        choice = "auto" if begun else self.config.tool_choice
        return self.parts.tools.box(offered, client, choice)

    def part(self, what: str, box: Box, must: tuple[str, ...] = ()) -> Builder:
        """The template of a part for this box."""
        return self.parts.template(what, self.config, box, must).builder(self)

    def may_read(self, port: str) -> Feed | None:
        """As a Block has it."""
        is_list = dict(self.inputs).get(port)
        return None if is_list is None else Feed(Ref(QUERY, port), 1 if is_list else None)
