-- Q3, several calls: texts for those rows that the filter leaves.
SELECT title,
       LLM('Recommend films to somebody who liked this one, and say why in one sentence.',
           review_content, movie_info, max_tokens := 60) AS advice
FROM reviews JOIN movies USING (title)
WHERE LLM('Is this film suitable for kids?', review_content, movie_info,
          choices := ['Yes', 'No']) = 'Yes'
  AND review_type = 'Fresh'
