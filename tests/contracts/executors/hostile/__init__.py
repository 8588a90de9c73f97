"""What a hostile customer does to a node: each attack first seen to succeed without its protection."""
