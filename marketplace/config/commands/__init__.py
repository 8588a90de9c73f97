"""Commands that the roof adds to `souk`, as entry points: each module has a Typer app named `app`."""
