"""The porter at the provider's door: enrols a machine, runs assignments, meters them. No Django, no torch."""
