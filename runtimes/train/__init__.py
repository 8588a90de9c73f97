"""Trains a causal language model under torchrun. Start it by `python -m runtimes.launch`.

In the order in which a training goes through them:

__main__.py     one rank as a process: its signals, its exit code, its error message
config.py       the configuration, checked whole
container.py    the folders and the place among the ranks, from the environment
loop.py         the training from its start to its end
strategies/     how the ranks share the work: one module a strategy
collective_trace.py  which collective each rank was in when one failed
parallel.py     the ranks' process groups, and what they exchange beside the gradients
model.py        the model: shipped, from a folder, or from the hub
weights.py      its weights, read or drawn block by block
adapters.py     LoRA: small matrices that are trained in place of its weights
quantization/   frozen weights in four bits
blocks.py       what its blocks compute anew, and whether they are compiled
objectives/     what is made smaller: one module an objective
loss.py         the loss, without ever holding all logits
data/           tokenizer, documents, tokens, and which of them a step takes
shares.py       how many sequences of each batch a rank computes
prepare.py      everything before the first step
preparing.py    the events of long work there
training.py     what the steps share
optimizer.py    AdamW and its schedule
evaluate.py     the loss on held-out data
sample.py       sampled text
callbacks/      what goes on beside the steps: early stop, averages of the weights, traces
checkpoint.py   writing, finding and pruning checkpoints
checkpoint_reader.py  reading them as data: what strangers saved never runs
archives.py     what torch's archives and pickles may ask for, whoever wrote them
peaks.py        what GPUs multiply at most, by their data sheets
report.py       events for the agent, lines for people
export.py       the model that the customer gets
errors.py       everything that ends a training with a message
"""
