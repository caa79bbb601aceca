"""Misconfiguration, said at start instead of found at night."""
