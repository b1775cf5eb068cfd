"""One query over tables, by Teola and by what else people use for it. See README.md here."""
