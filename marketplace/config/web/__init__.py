"""The web process: sockets on one event loop, Django in a few threads, and nobody holds a thread by being slow.

application.py   one request: read whole, answered by Django in a thread, sent at the reader's pace
bodies.py        request bodies, read within bounds before a thread is taken
connections.py   connections, bounded in number, bytes and time
environ.py       a request as Django's WSGI handler takes it
polls.py         requests that wait for something new, without a thread
worker.py        gunicorn's worker class
"""
