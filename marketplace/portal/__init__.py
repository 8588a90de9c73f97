"""The web pages of the marketplace: one folder for each group of pages.

landing/     /                              what the market offers now
install/     /install.sh, /dist/, /nodes/   what a computer needs to become a node, and its own page
signin/      /signin, /signout, /password
jobs/        /jobs, /launch                 an organisation's jobs, and the editor that launches one
offers/      /offers                        what can be rented now
earn/        /earn                          a provider's nodes: add, watch, drain, price, earnings
billing/     /billing                       an organisation's money: balance, top-ups, transfers
solvency/    /solvency                      whether the marketplace holds all that it owes
usage/       /usage                         which models an organisation used
chat/        /chat                          conversations with models, and data sets made of them

visitors.py  `page`: the decorator of pages for signed-in users, and who the user is
navigation.py where a visitor may go
templatetags/ the masthead of every page, and figures as people read them
amounts.py   money as text
fake_card.py the page of the fake card, on loopback only
urls.py      the addresses of all groups, and how a page is added
errors.py, models.py, admin.py, apps.py     as in every Django app
"""
