"""Words and clauses of which plots and reviews are made."""

from typing import Final

FIRST: Final = (
    "Quiet", "Last", "Paper", "Winter", "Crooked", "Golden", "Hollow", "Seventh", "Silent",
    "Borrowed", "Distant", "Iron",
)  # fmt: skip
SECOND: Final = (
    "Harbour", "Lantern", "Orchard", "Letter", "Bridge", "Summer", "River", "Garden", "Kingdom",
    "Signal", "Island",
)  # fmt: skip
HEROES: Final = (
    "Ada", "Bruno", "Cleo", "Dora", "Emil", "Fanny", "Gus", "Hanne", "Ivo", "Jana", "Kaspar",
    "Lotte", "Milo", "Nora", "Otto", "Petra",
)  # fmt: skip
JOBS: Final = (
    "lighthouse keeper", "baker", "night nurse", "postman", "piano tuner", "ferry pilot",
    "clockmaker", "teacher",
)  # fmt: skip
PLACES: Final = (
    "a fishing village", "a mountain town", "the old port", "a city without cars",
    "an island school",
)  # fmt: skip
GENTLE: Final = (
    "finds a lost puppy and learns whose it is", "builds a boat with the children of the street",
    "teaches a shy parrot to sing", "bakes a cake for everybody in town",
    "looks for the friend who moved away", "wins a race that nobody wanted to run",
    "plants a tree where the cinema stood",
)  # fmt: skip
GRIM: Final = (
    "finds a body and a bag full of money", "takes revenge for a murder in the family",
    "comes home from the war with blood on the coat",
    "is hunted through the tunnels by armed men", "hides a killer in the cellar",
    "loses everything to drink and to cards", "learns who set the house on fire, and why",
)  # fmt: skip
GENTLE_ENDS: Final = (
    "It is a warm tale for the whole family", "Children will laugh, and so will others",
)  # fmt: skip
GRIM_ENDS: Final = (
    "It is violent and meant for adults", "Nobody in it is safe until the last shot",
)  # fmt: skip
TURNS: Final = (
    "Then", "One winter", "Before long", "In the meantime", "Late one night", "At last",
)  # fmt: skip
ASPECTS: Final = (
    "acting", "story", "music", "photography", "ending", "dialogue", "pace", "second half",
    "first hour", "humour",
)  # fmt: skip
GOOD: Final = (
    "moving", "clever", "warm", "fresh", "honest", "brilliant", "gentle", "sharp", "generous",
    "lovely", "bold", "graceful",
)  # fmt: skip
BAD: Final = (
    "dull", "loud", "clumsy", "cold", "predictable", "endless", "shallow", "tired", "noisy",
    "forced", "muddled", "lazy",
)  # fmt: skip
GOOD_CLAUSES: Final = (
    "I would see it again tomorrow", "the cinema was silent with joy",
    "{hero} is a delight to watch", "the {aspect} stays with you for days",
    "few films this year are as {quality}", "it earns every one of its minutes",
)  # fmt: skip
BAD_CLAUSES: Final = (
    "I looked at my watch three times", "half of the row had left by then",
    "not even {hero} can save it", "the {aspect} is what I would like to forget",
    "few films this year are as {quality}", "it has one idea and repeats it",
)  # fmt: skip
