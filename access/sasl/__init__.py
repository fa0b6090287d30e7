"""SASL on the server's side: one exchange per mechanism, without sockets, tasks or clocks of their own."""
