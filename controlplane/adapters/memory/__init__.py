"""Working stand-ins, with faults to order: a loop can be driven without any server."""
