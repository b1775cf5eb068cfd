"""Model servers that answer as a script says, on real sockets, byte for byte as their own makers
document it."""
