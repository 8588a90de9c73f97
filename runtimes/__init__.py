"""The programs that run inside the containers. They import nothing else of Souk.

contract.py     what a container is given and must leave behind; all that agents import of this package
shapes/         what a model consists of, from its config.json
plan/           what a training takes, by arithmetic without torch; the server and the customer's command import it, too
job_files.py    where a path of the configuration lies: among the job's files, or in a shared host folder
node_cache.py   what earlier jobs of the customer left on the node
reporting.py    for programs of customers' own: progress, metrics, checkpoints; one file that stands alone
checking.py     a configuration checked whole, with every mistake
launch.py       torchrun for a container: its arguments from the environment, the ranks' exit code
spare_ranks.py  ranks of a gang, which load torch before it has met
generations.py  outlives the ranks of its node, where the gang goes on with other nodes
rendezvous.py   waits for a gang's network interface and for its rank zero
train/          trains language models
serve/          serves models
probe/          measures devices, and answers the marketplace's challenges
"""
