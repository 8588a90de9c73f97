"""The data of a training: from files to the samples of each step.

tokenizer.py   the tokenizer: trained on the data, or loaded
corpus.py      documents, tokens, sequences
order.py       which samples a step takes
"""
