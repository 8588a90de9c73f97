"""Our transactions: each is decided once, gets one nonce, and is followed until it is final.

planning.py      plan, and the order of a dispatch
rotating.py      what a former key planned goes to the key of its role now
adopting.py      a key was used elsewhere: its nonces continue from the chain's
closing.py       what is mined deep enough is final, with its gas booked
sending.py       what is signed goes out
rebroadcast.py   what nobody mines goes out again, or with higher fees
signing.py       what is planned is signed, in order
fees.py          what we offer for gas
retrying.py      a call whose transaction failed is planned again
"""
