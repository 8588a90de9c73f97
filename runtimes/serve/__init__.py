"""The serving runtime: brings a model up behind one Unix socket, and says `ready` only after one real token."""
