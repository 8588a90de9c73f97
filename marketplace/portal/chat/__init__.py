"""The chat: users write to the endpoints that their organisation may call, and train models on the conversations.

answering.py        writes an answer in a thread of its own: begin, start, follow, stop
asking.py           one request to the gateway, as a stream that another thread can close
catalogue.py        which models a user may chat with, and what they cost
conversations.py    conversations as turns to learn from
dataset_views.py    the pages of data sets
datasets.py         conversations become the input of a training job
errors.py           what is refused, in sentences for the user
forgetting.py       deletes what belongs to a user who is erased
keeping.py          the user's own chats: begin, find, change, delete
markup.py           a model's text as HTML in which nothing can run
models.py           the tables
page_keys.py        the endpoint keys with which pages call the gateway
urls.py             the addresses
views.py            the pages of chats
"""
