"""The paper's evaluation of language models over tables, simulated. See README.md here."""
