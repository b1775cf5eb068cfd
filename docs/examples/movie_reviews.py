# %% [markdown]
# # Asking a model about a table of reviews
#
# The queries of the application `movie-reviews`, cell by cell (in VS Code, PyCharm, or Jupyter with
# jupytext), or all at once: `python docs/examples/movie_reviews.py`. See docs/tables.md.

# %%
from pathlib import Path
from tempfile import mkdtemp

from teola import tables
from teola.testing import ScriptedModel
from teola_apps.movie_reviews import query, write

folder = write(Path(mkdtemp()) / "movie-reviews", rows=400)
sources = {name: folder / f"{name}.csv" for name in ("movies", "reviews")}

# %% [markdown]
# A stand-in judges by words, so that this runs everywhere. To ask a model, write
# `llm = "http://localhost:8000/v1"`.


# %%
def judge(call):
    """What the stand-in says to a prompt."""
    if "suitable for kids" in call.prompt:
        gentle = "whole family" in call.prompt or "Children will laugh" in call.prompt
        return "Yes" if gentle else "No"
    if "How satisfied" in call.prompt:
        praise = ("see it again", "delight", "silent with joy", "stays with you", "earns every one")
        return "5" if any(words in call.prompt for words in praise) else "2"
    return "Something with more boats in it."


llm = ScriptedModel(judge)
answers = folder / "answers.duckdb"

# %% [markdown]
# ## What would it take?
#
# Nothing is asked. Rows, distinct prompts and what is left to ask are counted.

# %%
for_kids = tables.sql(query("for_kids"), sources, answers=answers, price="2.5,0.25,10")
print(for_kids.explain())

# %% [markdown]
# ## Run it, for at most so much money

# %%
done = for_kids.run(llm=llm, most_cost=1.0)
print(done, done.report["asked"], "asked")
print(done.rows[0])
assert done.state == "ok"

# %% [markdown]
# ## Again: nothing is asked

# %%
again = for_kids.run(llm=llm)
assert again.rows == done.rows
assert again.report["asked"] == 0

# %% [markdown]
# ## A query that begins alike asks for the rest only
#
# Its condition is that of the query before: so only the recommendations are new.

# %%
advice = tables.sql(query("for_kids_recommend"), sources, answers=answers).run(llm=llm)
conditions, recommendations = advice.report["stages"]
assert conditions["asked"] == 0
assert recommendations["asked"] == recommendations["distinct"] <= done.row_count
print(advice.rows[0])

# %% [markdown]
# ## Numbers, averaged by film
#
# Reviews of the type `Fresh` praise, so the films with many of them should be those with high
# numbers.

# %%
satisfied = tables.sql(query("satisfaction"), sources, answers=answers).run(llm=llm)
print(satisfied.pandas().head())

shares = tables.sql(
    """
    WITH f AS (SELECT title, avg(CASE review_type WHEN 'Fresh' THEN 1 ELSE 0 END) AS fresh
               FROM reviews GROUP BY title)
    SELECT corr(satisfied, fresh) FROM s JOIN f USING (title) WHERE reviews > 5
    """,
    {"s": satisfied, "reviews": sources["reviews"]},
)
((correlation,),) = shares.run().rows
print(f"correlation with the share of Fresh: {correlation:.2f}")
assert correlation > 0.5

# %% [markdown]
# ## New reviews are asked about, and the others are not

# %%
title, info = tables.read(sources["movies"]).limit(1).run().rows[0]
with sources["reviews"].open("a", encoding="utf-8") as file:
    file.write(f"{title},It is a delight to watch.,Fresh,5/5,true\n")
more = for_kids.run(llm=llm)
print(more.report["asked"], "asked,", more.report["answered_before"], "answered before")
assert more.report["asked"] == 1

# %% [markdown]
# ## The same in Python

# %%
movies, reviews = (tables.read(path) for path in sources.values())
both = reviews.join(movies, "title")
kids = tables.llm(
    "Is this film suitable for kids?", both.review_content, both.movie_info, choices=["Yes", "No"]
)
good = both.filter(both.review_type == "Fresh", kids == "Yes").select("title", "review_content")
same = good.run(llm=llm, answers=answers)
assert sorted(same.rows) == sorted(more.rows)
assert same.report["asked"] == 0
