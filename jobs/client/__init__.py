"""The customer's side: the SDK and the `souk` command. No Django."""
