"""The customer's side: the Python client and the `souk` command. No Django; the base packages are enough.

cli.py            the `souk` command, with exit status and error message
commands/         one module for each group of commands
exports/          a job's curve as files of other tools
views/            what people see on a terminal
sdk.py            `Souk`: one method for each route of the API
sdk_account.py    the part of `Souk` about identity and money
sdk_organisation.py  the part about members, invitations and limits
sdk_payments.py   the part about top-ups, refunds and invoices
transport.py      one request: signed in, retried where that is safe
settings.py       which server, and the key for it
state_files.py    what this computer remembers of marketplaces
launch.py         from a job file to a submitted job
training_plan.py  what a training takes, before anything is asked of a marketplace
gather.py         the files that a job file names
ignoring.py       what of a folder is not sent: ignore files, well-known secrets
upload.py         sends them
begun_uploads.py  uploads to go on with
volumes/          named folders in the store
watch.py          watches a job to its end
follow.py         a log or events as one stream
download.py       fetches an artifact's files, each checked
results.py        whether a job left anything to fetch
job_states.py     what a job's state means to somebody who waits
remote.py         installs the agent on other computers by SSH
wallet/           what a customer's or provider's own wallet signs and sends
verify/           checks of bills, earnings and solvency on this computer
output.py         times and JSON
tables.py         a table that fits its terminal
whole_file.py     a file that is there whole or not at all
errors.py         the errors, each with its exit status
exit_codes.py     the exit statuses
"""
