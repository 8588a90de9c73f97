"""The public API of jobs, under /api/v1. Views are doors: they translate, call one verb, and show its result."""
