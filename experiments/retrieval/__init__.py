"""Which passage answers a question: Teola's searches beside others', and when the reader declines."""
