"""What the application text-to-sql is made of: pure functions over what models and databases say.

wanted.py     what was asked, and what it follows up
prompts.py    what models are told
replies.py    what they reply: a statement, that it cannot be told, a doubt
attempts.py   a turn of a candidate: is it good, and if not, what is said of it
choosing.py   which candidate stands
answering.py  words and numbers of the answer
charts.py     a chart as data
kept.py       examples that people have kept, in a collection
"""
