"""What a model consists of, from its config.json alone: no torch, and nothing else of ours.

shape.py     linear modules, tables and norms of a model
families.py  a config.json to a shape: one function a family of models; others are unknown, and never guessed
"""
