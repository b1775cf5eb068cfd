"""Equal work once: of equal works that are queued or in flight, one is done and all are answered.

    leader     as any other work: in the policy's line, in flight, tried again
    follower   known to its queue, and to no policy; it has no place anywhere

Works are equal if their drivers gave them the same digest (`Work.same`). When the leader has ended,
its followers have: with what it gave, or for the reason for which it failed. A leader that its
query withdraws leaves a call in flight to the others, who are answered by it all the same; it is
stopped when the last one has gone. If nothing of it is in flight, the oldest of them is queued in
its place.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from teola.policies.work import Work, WorkKey


@dataclass(slots=True, eq=False)
class Group:
    """A leader's key, and who follows it, the oldest first, with their sizes."""

    leader: WorkKey
    followers: dict[WorkKey, int] = field(default_factory=dict)


class Followers:
    """The followers of one queue. works: all works that the queue knows."""

    def __init__(self, works: Mapping[WorkKey, Work]) -> None:
        self._works = works
        self._groups: dict[Hashable, Group] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def leader(self, same: Hashable) -> Work | None:
        """Whom a work with this digest would follow."""
        group = self._groups.get(same)
        leader = self._works.get(group.leader) if group is not None else None
        if leader is None or (leader.done and not leader.spec.members):
            return None  # what came of it already went to others only
        return leader

    def leads(self, work: Work) -> None:
        """A work is queued, and others may follow it."""
        if work.same not in self._groups:
            self._groups[work.same] = Group((work.run, work.primitive))

    def join(self, work: Work, leader: Work) -> None:
        """`work` follows `leader` from now on."""
        work.leader, work.queued, work.spans = (leader.run, leader.primitive), False, []
        self._groups[work.same].followers[work.run, work.primitive] = work.total
        work.total = 0

    def of(self, leader: Work) -> list[Work]:
        """The works that follow `leader`."""
        group = self._group(leader)
        return [] if group is None else [self._works[key] for key in group.followers]

    def followed(self, leader: Work) -> bool:
        """Whether somebody does."""
        group = self._group(leader)
        return group is not None and bool(group.followers)

    def leave(self, follower: Work) -> Work | None:
        """A follower does not want it any more. Its leader, if that was the last one."""
        group = self._groups[follower.same]
        del group.followers[follower.run, follower.primitive]
        return None if group.followers else self._works.get(group.leader)

    def ended(self, leader: Work) -> list[Work]:
        """A leader has ended, or goes on alone: who followed it. Nobody does any more."""
        group = self._group(leader)
        if group is None:
            return []
        del self._groups[leader.same]
        works = []
        for key, total in group.followers.items():
            work = self._works[key]
            work.leader, work.total = None, total
            works.append(work)
        return works

    def _group(self, leader: Work) -> Group | None:
        group = self._groups.get(leader.same) if leader.same is not None else None
        if group is None or group.leader != (leader.run, leader.primitive):
            return None
        return group
