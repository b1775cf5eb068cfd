"""The life of a query: what lies between "somebody asks" and "the driver runs it"."""
