"""Souk's own engine: small, and it commits to what it computed, so that another replica can check it.

__main__.py   the process
adapter.py    this engine, as the serving runtime starts it
http.py       requests in, answers out
request.py    a request's JSON, checked
text.py       tokens to text and back
batch.py      many answers at once, a token each a step
model.py      the forward pass, and the memory of all sequences
sampling.py   drawing tokens so that they can be drawn again
answers.py    OpenAI's form
check.py      whether another replica's answer is what this model gives
errors.py     what is wrong with a request
"""
