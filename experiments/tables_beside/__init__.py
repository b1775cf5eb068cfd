"""Interactive queries beside a run of rows. See README.md here."""
