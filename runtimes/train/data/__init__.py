"""The data of a training: from files to the samples of each step.

documents.py      the files: texts, lines, tables; one record at a time
conversations.py  records as text, and which parts of it are learned
chat.jinja        how a conversation is written where a model brings no template
s3.py             objects on S3, which become files here
s3_client.py      how S3 is asked, with the job's own credentials
s3_watch.py       how long its answers are waited for
tokenizer.py      the tokenizer: trained on the data, or loaded
pairs.py          pairs of answers to one prompt, one of them preferred
encode.py         records as tokens on disk: a stream of texts, or rows of packed conversations
keys.py           what tokens depend on, as one digest
kept.py           tokens in the node's cache
corpus.py         samples by number
prepare.py        all of this, once a node
order.py          which samples a step takes
"""
