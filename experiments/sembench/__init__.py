"""The movie scenario of SemBench, as Teola asks its ten questions. See README.md here."""
