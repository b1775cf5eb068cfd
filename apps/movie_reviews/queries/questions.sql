-- Q5, retrieval: three plots for each question, of a collection that was indexed before:
-- teola index movie-reviews/plots --collection plots
SELECT question, answer,
       LLM('Answer the question from the contexts, with a few words.',
           RETRIEVE(question, 'plots', 3), question, max_tokens := 24) AS said
FROM questions
