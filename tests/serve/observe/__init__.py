"""What operators are told: metrics, spans, log lines."""
