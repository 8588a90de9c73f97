"""The web pages of the marketplace: one folder for each group of pages.

    landing/     /                              what the market offers now
    install/     /install.sh, /dist/, /nodes/   what a computer needs to become a node, and its own page
    signin/      /signin, /signout, /password
    solvency/    /solvency                      whether the marketplace holds all that it owes
    usage/       /usage                         which models an organisation used
    chat/        /chat                          conversations with models, and data sets made of them

    visitors.py  `page`: the decorator of pages for signed-in users, and who the user is
    amounts.py   money as text
    fake_card.py the page of the fake card, on loopback only
    urls.py      the addresses of all groups
    errors.py, models.py, admin.py, apps.py     as in every Django app

To add a page:
    1. Write the view into `<group>/views.py`. A page for signed-in users has the decorator `@page("GET")` and takes
       the visitor as its second argument; a public page sets its caching itself.
    2. Write its template into `templates/portal/<group>/`; it extends `portal/page.html`.
    3. Name its address in `<group>/urls.py`; a new group is included in `urls.py`, and listed above.
    4. Test it in `tests/integration/portal/`.
"""
