"""python -m teola_apps.movie_reviews [FOLDER] [--rows N] [--seed N]"""

from __future__ import annotations

import argparse

from .files import FOLDER, write
from .generated import ROWS


def main(words: list[str] | None = None) -> None:
    """Write the folder, and say what to do with it."""
    parser = argparse.ArgumentParser(
        prog="python -m teola_apps.movie_reviews",
        description="Write tables of film reviews and queries over them.",
    )
    parser.add_argument("folder", nargs="?", default=FOLDER, metavar="FOLDER")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"reviews, by default {ROWS}")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    if asked.rows < 1:
        parser.error(f"--rows must be at least 1, not {asked.rows}")
    root = write(asked.folder, asked.rows, asked.seed)
    print(f"{root}: {asked.rows:,} reviews. What would a query take?\n")
    print(f"teola sql --file {root}/for_kids.sql --table movies={root}/movies.csv \\")
    print(f"  --table reviews={root}/reviews.csv --price 2.5,0.25,10 --explain")


if __name__ == "__main__":
    main()
