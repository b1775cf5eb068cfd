"""Engines that can compute a prefix ahead and keep none for later queries, as the paper's."""

from __future__ import annotations

from dataclasses import replace

from teola.profile import Profile


def forgetful(profile: Profile) -> Profile:
    """The same profile of such engines."""
    engines = {name: replace(e, keeps_prefixes=False) for name, e in profile.engines.items()}
    return replace(profile, engines=engines)
