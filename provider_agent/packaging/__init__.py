"""How the agent lives on a computer: as a systemd unit, in the background, or in a container."""
