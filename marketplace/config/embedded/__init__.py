"""Embedded mode: PostgreSQL, Redis and Souk's own processes as children of one command."""
