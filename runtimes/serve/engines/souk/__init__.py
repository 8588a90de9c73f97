"""Souk's own engine: small, and it commits to what it computed, so that another replica can check it.

__main__   the process
http       requests in, answers out
ask        a request's JSON, checked
text       tokens to text and back
batch      many answers at once, a token each a step
model      the forward pass, and the memory of all sequences
sampling   drawing tokens so that they can be drawn again
answers    OpenAI's form
check      whether another replica's answer is what this model gives
"""
