-- Q1, projection: a text for each review.
SELECT title,
       LLM('Recommend films to somebody who liked this one, and say why in one sentence.',
           review_content, movie_info, max_tokens := 60) AS advice
FROM reviews JOIN movies USING (title)
