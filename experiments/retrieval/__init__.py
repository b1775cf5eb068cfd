"""Which passage answers a question, by Teola's searches and by others; when the reader declines."""
