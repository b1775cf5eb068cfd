"""Whether timelines tell the truth; see README.md here."""
