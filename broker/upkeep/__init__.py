"""Jobs that a broker does from time to time: flush, clean, retain, expire, report moves, take directories back."""
