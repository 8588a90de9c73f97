"""What providers earned leaves: when, how much, through which rail, and what the statement says of it."""
