"""/api/v1: money, a file a subject."""
