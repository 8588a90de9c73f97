"""What a training makes smaller: one module an objective.

base.py         what an objective is, and the figures that it reports beside the loss
batches.py      the parts of a batch that a rank computes one after the other
likelihood.py   each next token's cross-entropy: texts, and the answers of conversations
dpo.py          the better one of two answers is preferred to the other
references.py   what the model said of each pair before it was trained
registry.py     which one a configuration asks for
"""
