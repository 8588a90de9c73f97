"""Which nodes a job goes to, and why not to others. Pure: no ORM, no Django, no clock; the same input, the same answer.

demand     from a job file to what is asked
request    what one job demands, as the matcher reads it
work       how many FLOPs a job file declares
snapshot   the fleet at one moment, in columns
why        the reasons, in their order
fit        strict fit of each node, with one reason for each exclusion
cost       expected cost to complete
fabrics    which nodes reach each other, from measured links
places     seats that take a whole demand: one node, or a gang on one fabric
match      a batch of requests -> placements and reasons
plan       one request -> the plan table of a quote
fixes      the nearest change that makes a job fit
"""
