"""No framework: the same steps by hand."""
