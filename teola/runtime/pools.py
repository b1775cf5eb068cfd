"""Pools: an engine whose instances have options of their own.

Several servers by URL, or one model on different processors, are one engine with unequal instances.
What each entry of a pool may say is read here, and what the engine declares as a whole: what holds
of its weakest instance. (Each is filled as far as it declares itself: `queue_for`.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final
from urllib.parse import urlsplit

from teola.engine import EngineKind, EngineSpec
from teola.errors import InputError, UnknownName
from teola.plain_number import is_number
from teola.price import Price
from teola.profile import FORMAT_VERSION, EngineProfile, Profile, from_json, load_profile

_LIKE: Final = 'such as [{"url": "http://one:8000/v1"}, {"url": "http://two:8000/v1"}]'
_URL: Final = re.compile(r"\w+://[^\s'\"]+")


@dataclass(frozen=True, slots=True)
class Member:
    """What is an instance's own.

    options: of its engine, over those of all instances.
    resources: what it asks of a Ray node, over what all ask.
    profile: a profile's name or file, an entry of one, or None.
    price: of its model's tokens, where it is another than the model's name says.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, float] = field(default_factory=dict)
    profile: str | Mapping[str, Any] | EngineProfile | None = None
    price: Price | None = None


BESIDES: Final = frozenset({"resources", "profile", "price"})
"""What an entry of a pool may have that is no option of its engine."""


def member_of(entry: Mapping[str, Any], where: str) -> Member:
    """An entry of a pool: options, and besides them `resources`, `profile` and `price`.

    Raises InputError, UnknownName.
    """
    options = {key: value for key, value in entry.items() if key not in BESIDES}
    if "name" in options:
        raise InputError(f"{where}: instances have the name of their engine; take `name` out")
    resources, profile = entry.get("resources", {}), entry.get("profile")
    if not isinstance(resources, Mapping) or not all(is_number(n) for n in resources.values()):
        raise InputError(f'{where}: resources must be numbers by name, such as {{"num_gpus": 1}}')
    if profile is not None and not isinstance(profile, str | Mapping | EngineProfile):
        raise InputError(f"{where}: profile must be a name, a file, or an engine's part of one")
    return Member(options, resources, profile, _price(entry.get("price"), where))


def _price(given: object, where: str) -> Price | None:
    if given is None or isinstance(given, Price):
        return given
    if not isinstance(given, Mapping) or not {"prompt", "answer"} <= given.keys():
        raise InputError(
            f"{where}: price is money for a million tokens, such as "
            f"{{prompt = 0.15, answer = 0.6}}, not {given!r}"
        )
    known = tuple(field.name for field in fields(Price))
    for key in given:
        if key not in known:
            raise UnknownName("key", str(key), known, f"{where}: price")
    try:
        return Price(**given)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def entries_of(pool: object) -> tuple[Mapping[str, Any], ...]:
    """A pool as it was given, checked for its form. Raises InputError."""
    if not isinstance(pool, Sequence) or isinstance(pool, str):
        raise InputError(f"a pool is a list of options, one entry an instance, {_LIKE}")
    for i, entry in enumerate(pool):
        if not isinstance(entry, Mapping):
            raise InputError(f"entry {i} of a pool must be a table of options, {_LIKE}")
    return tuple(pool)


# --- profiles -------------------------------------------------------------------------------


def profile_of(member: Member, where: str) -> Profile | EngineProfile | None:
    """The profile that a member names, read. Raises InputError, UnknownName."""
    given = member.profile
    if isinstance(given, str):
        return load_profile(given)
    if isinstance(given, Mapping):
        data = {"version": FORMAT_VERSION, "name": "", "engines": {"": given}}
        return from_json(data, f"{where}: profile").engines[""]
    return given


def picked(
    found: Profile | EngineProfile | None, name: str, kind: EngineKind, where: str
) -> EngineProfile | None:
    """The part of a profile that is for engine `name`, or for its kind. Raises InputError."""
    if not isinstance(found, Profile):
        return found
    for key in (name, kind.value):
        if key in found.engines:
            return found.engines[key]
    raise InputError(
        f"{where}: profile {found.name!r} knows neither {name!r} nor the kind {kind.value!r}: "
        f"measure it with `teola profile measure {name}`"
    )


# --- the engine as a whole ------------------------------------------------------------------


def joint(specs: Sequence[EngineSpec]) -> EngineSpec:
    """What an engine declares of which the instances declare `specs`: what holds of each."""
    return replace(
        specs[0],
        max_batch=min(spec.max_batch for spec in specs),
        max_sequences=min(spec.max_sequences for spec in specs),
        concurrency=min(spec.concurrency for spec in specs),
        prefix_reuse=all(spec.prefix_reuse for spec in specs),
        kv_blocks=_fewest([spec.kv_blocks for spec in specs]),
        window=_fewest([spec.window for spec in specs]),
        keeps_prefixes=all(spec.keeps_prefixes for spec in specs),
        full_text=all(spec.full_text for spec in specs),
        notice=next((spec.notice for spec in specs if spec.notice), ""),
    )


def _fewest(figures: Sequence[int | None]) -> int | None:
    """The smallest of what instances have; unknown where one of them is."""
    known = [one for one in figures if one is not None]
    return min(known) if len(known) == len(figures) else None


def profiles_of(
    entry: EngineProfile, own: Sequence[EngineProfile | None], specs: Sequence[EngineSpec] | None
) -> tuple[EngineProfile, ...]:
    """A profile for each instance; none where all are as the engine's, `entry`.

    own: what the pool gives. specs: of the instances, where the engine's profile does not decide
    their limits.
    """
    profiles = []
    for i, profile in enumerate(own):
        if profile is None and specs is not None:
            profile = replace(
                entry,
                max_batch=specs[i].max_batch,
                max_sequences=specs[i].max_sequences,
                concurrency=specs[i].concurrency,
            )
        profiles.append(profile or entry)
    return () if all(profile_of_one == entry for profile_of_one in profiles) else tuple(profiles)


# --- for eyes -------------------------------------------------------------------------------


def presentable(text: str) -> str:
    """A text without what URLs in it may keep secret: user, password, query and fragment."""
    return _URL.sub(lambda match: _bare(match[0]), text)


def _bare(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("://")[0] + "://..."
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
