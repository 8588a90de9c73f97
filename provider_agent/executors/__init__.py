"""How a program is started, watched, stopped and found again: as a process group, or in a container."""
