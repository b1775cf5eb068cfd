"""How many rows a query over tables gets through, and what is left of it when it is killed."""
