"""Movie reviews: the tables of the paper on queries with language models, and its five queries.

    python -m teola_apps.movie_reviews          writes the folder movie-reviews
    teola sql --file movie-reviews/for_kids.sql -t movies=movie-reviews/movies.csv
        -t reviews=movie-reviews/reviews.csv --explain

movies     title, movie_info
reviews    title, review_content, review_type, review_score, top_critic
questions  question, answer                    for questions.sql, over the collection `plots`

An application over tables is its tables and its SQL: a query is changed as a file, priced by
--explain, and run by `teola sql` or `teola.tables` (docs/decisions/0065). `generated.py` makes the
tables from a seed, with the statistics of the paper's data.
"""

from .files import QUERIES, query, write
from .generated import movies, questions, reviews

__all__ = ["QUERIES", "movies", "query", "questions", "reviews", "write"]
