"""What a routing policy sees of its engine's queue."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from teola.policies.routing.base import Capacity, InstanceView
from teola.profile import EngineProfile
from teola.schedule.asking import Asking
from teola.schedule.instances import Instances
from teola.schedule.prefix_index import PrefixIndex

_NONE: Mapping[int, int] = {}


class QueueView:
    """The policies' EngineView over a queue's own records: nothing is kept twice. prefixes: None
    where the policy does not want to know."""

    def __init__(
        self,
        instances: Instances,
        profiles: Sequence[EngineProfile],
        asking: Asking,
        prefixes: PrefixIndex | None,
    ) -> None:
        self.limits: Sequence[Capacity] = [instance.limits for instance in instances]
        self.profiles = profiles
        self._instances, self._asking, self._prefixes = instances, asking, prefixes

    def __len__(self) -> int:
        return len(self._instances)

    def instance(self, i: int, now: float) -> InstanceView:
        """Instance `i` as it is now."""
        here = self._instances[i]
        return InstanceView(
            here.usable(now),
            here.entries,
            here.weight,
            here.context,
            self._asking.tokens(i),
            here.free,
        )

    def hits(self, keys: Sequence[Hashable], now: float) -> Mapping[int, int]:
        """How many of these blocks, from the first on, each instance keeps (none: left out)."""
        return self._prefixes.hits(keys, now) if self._prefixes is not None and keys else _NONE
