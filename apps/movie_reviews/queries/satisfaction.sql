-- Q4, aggregate: numbers that a model gives, averaged by film.
SELECT title, count(*) AS reviews,
       round(avg(LLM('How satisfied is the writer of this review, from 0 to 5?',
                     review_content, movie_info, choices := [0, 1, 2, 3, 4, 5])), 2) AS satisfied
FROM reviews JOIN movies USING (title)
GROUP BY title
ORDER BY satisfied DESC, title
