"""Which router serves which workload best. See README.md here."""
