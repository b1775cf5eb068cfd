"""Learning: times, lengths and odds from what happens, for passes, policies, admission, explain."""

from teola.learning.at_work import AtWork
from teola.learning.learner import LearnedProfiles, Learner
from teola.learning.lessons import NO_LESSONS, EngineTimes, Lessons

__all__ = ["NO_LESSONS", "AtWork", "EngineTimes", "LearnedProfiles", "Learner", "Lessons"]
