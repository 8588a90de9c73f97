"""What an attempt prepared for long, from one node to the store and from there to another."""
