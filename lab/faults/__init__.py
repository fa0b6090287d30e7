"""Breaking a running cluster by name: the orders, who carries them out, and the socket that takes them from a command line."""
