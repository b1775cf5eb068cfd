"""Model servers that refuse, hang, slow down or come back, and who asks them. See README.md."""
