"""Faults of a real API server, what is on it, and the lease between two hosts."""
