-- Q2, filter: a condition that a model answers, behind one that costs nothing.
SELECT title, review_content
FROM reviews JOIN movies USING (title)
WHERE LLM('Is this film suitable for kids?', review_content, movie_info,
          choices := ['Yes', 'No']) = 'Yes'
  AND review_type = 'Fresh'
