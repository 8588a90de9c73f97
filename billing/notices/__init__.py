"""Who is notified, and how.

alerts.py    alerts to operators: raised once while their cause lasts, closed when it is gone
mailing.py   mail to users, once for each subject and person
"""
