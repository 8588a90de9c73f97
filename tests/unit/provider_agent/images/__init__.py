"""Where a customer's image may come from, against an engine and a registry of our own."""
