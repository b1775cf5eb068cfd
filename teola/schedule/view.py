"""What a routing policy sees of its engine's queue."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from teola.policies.routing.base import Capacity, InstanceView
from teola.profile import EngineProfile
from teola.schedule.asking import Asking
from teola.schedule.instances import Instances
from teola.schedule.prefix_index import PrefixIndex

GONE: Final = InstanceView(False, 0, 0, 0, 0, None)
_NONE: Mapping[int, int] = {}
_NEITHER: tuple[Mapping[int, int], Mapping[int, int]] = _NONE, _NONE


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
        self._about: Sequence[Hashable] | None = None
        self._found = _NEITHER
        self._stale = {*range(len(instances))}
        instances.stale = asking.stale = self._stale
        if prefixes is not None:
            prefixes.stale = self._stale
        self._now = [GONE] * len(instances)

    def __len__(self) -> int:
        return len(self._instances)

    def instances(self, now: float) -> Sequence[InstanceView]:
        """All of them as they are now; O(what has changed)."""
        stale = self._stale
        stale.update(self._instances.weak)
        for i in stale:
            self._now[i] = self._seen(i, now)
        stale.clear()
        return self._now

    def _seen(self, i: int, now: float) -> InstanceView:
        instance, (calls, tokens, context) = self._instances[i], self._asking.for_instance(i)
        return InstanceView(
            instance.usable(now),
            instance.entries,
            instance.weight,
            instance.context,
            tokens,
            instance.free,
            calls,
            context,
            self._prefixes.size(i) if self._prefixes is not None else 0,
        )

    def hits(self, keys: Sequence[Hashable], now: float) -> Mapping[int, int]:
        """How many of these blocks, from the first on, each instance keeps (none: left out)."""
        return self._look(keys, now)[0]

    def expected(self, keys: Sequence[Hashable], now: float) -> Mapping[int, int]:
        """The same, with what it is to compute for calls that were sent or bound there."""
        return self._look(keys, now)[1]

    def depth(self, i: int, keys: Sequence[Hashable], before: int) -> int:
        """How many of these blocks instance `i` keeps, which kept `before` of them when one last
        looked. O(what has changed)."""
        return self._prefixes.depth(i, keys, before) if self._prefixes is not None else 0

    def consider(self, keys: Sequence[Hashable] | None) -> None:
        """Until this is called again nothing changes, so that these keys are looked up once."""
        self._about, self._found = keys, _NEITHER

    def _look(
        self, keys: Sequence[Hashable], now: float
    ) -> tuple[Mapping[int, int], Mapping[int, int]]:
        if self._prefixes is None or not keys:
            return _NEITHER
        if keys is not self._about:
            return self._prefixes.look(keys, now)
        if self._found is _NEITHER:
            self._found = self._prefixes.look(keys, now)
        return self._found
