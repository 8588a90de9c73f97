"""The workshop: what runs inside the containers. Imports nothing else of Souk."""
