"""What a computer must have before it becomes a node. Standard library only: it runs out of the wheel, uninstalled."""
